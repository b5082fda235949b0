"""Clients that wait for 100 (Continue) behind `pronghorn run`: the upstream decides whether they
continue.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from harness.clients.h2_frames import H2Client
from harness.clients.raw_h1 import RawH1
from harness.clients.raw_h3 import RawH3, data, parse_answer
from harness.gateway import SITE
from harness.serving import listening, read_head

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CONTENT = b"hello"


class Exchange:
    """A request with `expect: 100-continue`, whose content is sent on 100."""

    def __init__(self, protocol: str, server, ca):
        self.kind = {"HTTP/1.1": RawH1, "HTTP/2": H2Client, "HTTP/3": RawH3}[protocol]
        self.origin, self.ca = server.origin, ca

    def ask(self) -> tuple[list[int], int, bytes]:
        """Returns the interim statuses, the final status, and the body."""
        with self.kind(self.origin, self.ca) as client:
            return getattr(self, self.kind.__name__)(client)

    def RawH1(self, client) -> tuple[list[int], int, bytes]:
        fields = f"host: {client.authority}\r\ncontent-length: {len(CONTENT)}\r\nexpect: 100-continue\r\n"
        client.socket.sendall(f"POST /up HTTP/1.1\r\n{fields}\r\n".encode())
        head, interim = b"", []
        while b"\r\n\r\n" not in head:
            head += client.socket.recv(1)
            if head.endswith(b"\r\n\r\n") and head.split()[1] == b"100":
                interim.append(100)
                client.socket.sendall(CONTENT)
                head = b""
        length = next(
            int(line[15:])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        body = b""
        while len(body) < length:
            body += client.socket.recv(length - len(body))
        return interim, int(head.split()[1]), body

    def H2Client(self, client) -> tuple[list[int], int, bytes]:
        stream = client.start("/up", method="POST", headers=[("expect", "100-continue")], end=False)
        exchange = client.exchanges[stream]
        while not exchange.interim and not exchange.headers:
            assert client.read()
        if exchange.interim:
            client.http.send_data(stream, CONTENT, end_stream=True)
            client.flush()
        answer = client.finish(stream)
        return [int(dict(head)[":status"]) for head in exchange.interim], answer.status, answer.body

    def RawH3(self, client) -> tuple[list[int], int, bytes]:
        client.open()
        stream = client.request(
            client.get("/up", ("expect", "100-continue"), method="POST"), fin=False
        )
        client.wait("a head", lambda: stream in client.streams and client.streams[stream].data)
        if parse_answer(client.streams[stream]).status == 100:
            client.write(stream, data(CONTENT), fin=True)
        answer = client.answer(stream)
        return answer.interim, answer.status, answer.body


@contextmanager
def origin(answer: Callable[[socket.socket], None], heads: list[bytes]) -> Iterator[str]:
    def serve(connection: socket.socket) -> None:
        heads.append(read_head(connection))
        answer(connection)

    with listening(serve) as address:
        yield f"http://{address}"


def read_content(connection: socket.socket) -> bytes:
    """Reads the content as it arrives, chunked or not."""
    content = b""
    while CONTENT not in content:
        piece = connection.recv(65536)
        assert piece, content
        content += piece
    return content


def answered(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


@pytest.fixture(params=["HTTP/1.1", "HTTP/2", "HTTP/3"])
def ask(request, start, gateway, ca):
    def run(address: str, layers: str = "") -> tuple[list[int], int, bytes]:
        gateway.write(
            SITE
            + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], retries = 0 }}\n{layers}\n'
        )
        return Exchange(request.param, start(gateway.command()), ca).ask()

    return run


@pytest.mark.parametrize("layers", ["", 'layers = ["compress"]'], ids=["alone", "layers"])
def test_upstream_rejects_instead_of_100(ask, layers):
    heads: list[bytes] = []
    with origin(
        lambda connection: connection.sendall(answered("401 Unauthorized", b"no")), heads
    ) as address:
        assert ask(address, layers) == ([], 401, b"no")
    assert b"expect: 100-continue" in heads[0].lower()
    assert CONTENT not in heads[0]


def test_100_of_the_upstream_is_forwarded(ask):
    heads: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.setblocking(True)
        connection.sendall(CONTINUE)
        connection.sendall(answered("200 OK", b"got %d" % (CONTENT in read_content(connection))))

    with origin(answer, heads) as address:
        assert ask(address) == ([100], 200, b"got 1")


def test_upstream_without_100_support_gets_the_content(ask):
    heads: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        connection.sendall(answered("200 OK", b"got %d" % (CONTENT in read_content(connection))))

    with origin(answer, heads) as address:
        assert ask(address) == ([100], 200, b"got 1")
