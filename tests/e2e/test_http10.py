"""HTTP/1.0: a connection is kept only if the client can tell where a response ends."""

from __future__ import annotations

import socket

import pytest

from harness import fastcgi
from harness.gateway import Handler

PAGE = b"hello " * 1000


def chunked(handler: Handler, _content: bytes) -> None:
    handler.send_response(200)
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(PAGE), PAGE))


def ask(client: socket.socket, path: str, method: str = "GET") -> tuple[list[bytes], bytes]:
    """Requests with `keep-alive`; returns the lines of the response head, and the content received
    with it.
    """
    client.sendall(
        f"{method} {path} HTTP/1.0\r\nHost: a.test\r\nConnection: Keep-Alive\r\nAccept-Encoding: gzip\r\n\r\n".encode()
    )
    received = b""
    while b"\r\n\r\n" not in received:
        received += (piece := client.recv(65536))
        assert piece, received
    head, _, content = received.partition(b"\r\n\r\n")
    return head.lower().split(b"\r\n"), content


def to_its_end(client: socket.socket, content: bytes) -> bytes:
    while piece := client.recv(65536):
        content += piece
    return content


@pytest.fixture
def clear(start, gateway, up):
    up.routes["/chunked"] = chunked
    (gateway.folder / "www").mkdir()
    (gateway.folder / "www" / "page.txt").write_bytes(PAGE)
    answer = fastcgi.output(b"Content-Type: text/plain\r\n\r\n" + PAGE) + fastcgi.end()
    with fastcgi.application(fastcgi.sent(answer)) as application:
        gateway.write(
            '[[sites]]\nhosts = ["*"]\n'
            + f'[[sites.routes]]\nmatch = "/chunked"\nproxy = "{up.address}"\n'
            + f'[[sites.routes]]\nmatch = "/application"\nproxy = "{application}"\n'
            + '[[sites.routes]]\nmatch = "/zip/*"\nfiles = "www"\nstrip_prefix = true\nlayers = ["compress"]\n'
            + '[[sites.routes]]\nfiles = "www"\n',
            listen=("http://127.0.0.1:0",),
        )
        server = start(gateway.command())
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            yield client


@pytest.mark.parametrize("path", ["/chunked", "/application", "/zip/page.txt"])
def test_response_delimited_by_close_says_connection_close(clear, path):
    head, content = ask(clear, path)
    assert head[0].split()[1] == b"200"
    fields = dict(line.split(b": ", 1) for line in head[1:])
    assert b"content-length" not in fields
    assert fields[b"connection"] == b"close"
    content = to_its_end(clear, content)
    assert content == PAGE or fields[b"content-encoding"] == b"gzip"


def test_connection_is_kept_if_the_length_is_known(clear):
    for path, method in [
        ("/page.txt", "GET"),
        ("/chunked", "HEAD"),
        ("/page.txt", "HEAD"),
        ("/page.txt", "GET"),
    ]:
        head, content = ask(clear, path, method)
        assert b"connection: keep-alive" in head, (path, method)
        while method == "GET" and len(content) < len(PAGE):
            content += (piece := clear.recv(65536))
            assert piece
        assert content == (PAGE if method == "GET" else b"")


def test_error_that_closes_the_connection_does_not_say_keep_alive(clear):
    head, content = ask(clear, "/page.txt", "TWO WORDS")
    assert head[0].split()[1] == b"400"
    assert [line for line in head if line.startswith(b"connection:")] in (
        [],
        [b"connection: close"],
    )
    to_its_end(clear, content)
