"""Request content for PHP behind `pronghorn run`."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack

import pytest

from harness.clients import aioquic_h3
from harness.clients.raw_h1 import RawH1
from harness.php import php_fpm, served
from harness.response import sha256
from harness.waiting import eventually

BOUNDARY = "----a-boundary"


def test_uploads_arrive_complete(start, gateway, fpm, www, fetcher):
    server = served(
        start, gateway, www, f"unix:{fpm}", ', variables = { PHP_VALUE = "upload_max_filesize=8M" }'
    )
    content = bytes(range(256)) * 8_000

    def send(path, method, kind, body):
        # The other clients send the length themselves.
        length = [("content-length", str(len(body)))] if fetcher.name == "aioquic-h3" else []
        return fetcher.fetch(
            server.origin + path,
            method=method,
            headers=[("content-type", kind), *length],
            body=body,
        )

    raw = send("/", "PUT", "x/y", content)
    seen = json.loads(raw.body)
    assert (seen["input"], seen["server"]["CONTENT_LENGTH"]) == (sha256(content), str(len(content)))
    head = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="up"; filename="a.bin"\r\n\r\n'
    form = head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
    upload = send("/index.php", "POST", f"multipart/form-data; boundary={BOUNDARY}", form)
    assert json.loads(upload.body)["files"] == {"up": ["a.bin", sha256(content)]}
    posted = send("/?q=1", "POST", "application/x-www-form-urlencoded", b"name=J%C3%BCrgen&b=2")
    seen = json.loads(posted.body)
    assert (seen["post"], seen["get"]) == ({"name": "Jürgen", "b": "2"}, {"q": "1"})


def test_script_may_respond_without_reading(start, gateway, fpm, www, fetcher):
    server = served(start, gateway, www, f"unix:{fpm}")
    # Too large to be collected.
    content = b"x" * 5_000_000
    # The other clients send the length themselves.
    length = [("content-length", str(len(content)))] if fetcher.name == "aioquic-h3" else []
    headers = [("content-type", "x/y"), *length]
    answer = fetcher.fetch(
        server.origin + "/?do=unread", method="POST", headers=headers, body=content
    )
    assert (answer.status, answer.body) == (200, b"enough")


def test_content_of_unknown_length_is_collected_up_to_a_limit(start, gateway, fpm, www, ca):
    server = served(
        start, gateway, www, f"unix:{fpm}", ', collect = "1KiB", collect_on_disk = "10KiB"'
    )
    origin = server.origin.removeprefix("https://")

    async def ask(size: int):
        async with aioquic_h3.h3_connection(server.origin, ca) as client:
            return await client.fetch("/", method="POST", body=b"x" * size)

    within = json.loads(asyncio.run(ask(10_240)).body)
    assert (within["server"]["CONTENT_LENGTH"], within["input"]) == ("10240", sha256(b"x" * 10_240))
    beyond = asyncio.run(ask(10_241))
    assert beyond.status == 411
    assert "collect_on_disk" in beyond.text()
    with RawH1(server.origin, ca) as client:
        client.socket.sendall(
            f"POST / HTTP/1.1\r\nhost: {origin}\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".encode()
        )
        seen = json.loads(client.receive().body)
        assert (seen["server"]["CONTENT_LENGTH"], seen["input"]) == ("5", sha256(b"hello"))


@pytest.mark.parametrize("client", ["HTTP/1.1", "HTTP/3"])
def test_large_content_of_unknown_length_is_spooled_to_disk(start, gateway, fpm, www, ca, client):
    # Finder and other WebDAV clients send files like this.
    server = served(
        start,
        gateway,
        www,
        f"unix:{fpm}",
        settings=f'buffering = {{ folder = "{gateway.folder}" }}',
    )
    host, content = server.origin.removeprefix("https://"), bytes(range(256)) * (3 << 12)
    before = sorted(gateway.folder.iterdir())
    if client == "HTTP/3":

        async def ask():
            async with aioquic_h3.h3_connection(server.origin, ca) as connection:
                return await connection.fetch("/", method="PUT", body=content)

        answer = asyncio.run(ask())
    else:
        with RawH1(server.origin, ca) as connection:
            head = f"PUT / HTTP/1.1\r\nhost: {host}\r\ntransfer-encoding: chunked\r\n\r\n"
            connection.socket.sendall(
                head.encode() + b"%x\r\n" % len(content) + content + b"\r\n0\r\n\r\n"
            )
            answer = connection.receive()
    seen = json.loads(answer.body)
    assert (seen["server"]["CONTENT_LENGTH"], seen["input"]) == (str(len(content)), sha256(content))
    # The file has no name, and ends with the request.
    assert sorted(gateway.folder.iterdir()) == before


def test_unwritable_spool_folder_is_logged(start, gateway, fpm, www, ca):
    folder = 'buffering = { folder = "/proc/self" }'
    server = served(start, gateway, www, f"unix:{fpm}", ', collect = "1KiB"', settings=folder)
    host = server.origin.removeprefix("https://")
    with RawH1(server.origin, ca) as client:
        head = f"POST / HTTP/1.1\r\nhost: {host}\r\ntransfer-encoding: chunked\r\n\r\n"
        client.socket.sendall(head.encode() + b"800\r\n" + b"x" * 2048 + b"\r\n0\r\n\r\n")
        assert client.receive().status == 503
    server.wait_for_lines(r"cannot buffer request bodies without content-length in /proc/self: ")


def test_collected_content_is_limited_in_total(start, gateway, fpm, www, ca):
    small = ', collect = "512", collect_on_disk = "10KiB"'
    server = served(
        start, gateway, www, f"unix:{fpm}", small, settings='buffering = { disk = "640KiB" }'
    )
    host = server.origin.removeprefix("https://")
    head = f"POST / HTTP/1.1\r\nhost: {host}\r\n"
    chunked = f"{head}transfer-encoding: chunked\r\n\r\n".encode()

    def ask(request: bytes):
        with RawH1(server.origin, ca) as client:
            client.socket.sendall(request)
            return client.receive()

    def ask_with_a_little() -> int:
        return ask(chunked + b"400\r\n" + b"x" * 1024 + b"\r\n0\r\n\r\n").status

    with ExitStack() as waiting:
        for _ in range(64):
            client = waiting.enter_context(RawH1(server.origin, ca))
            client.socket.sendall(chunked + b"2800\r\n" + b"x" * 10_240 + b"\r\n")
        eventually("capacity is exhausted", lambda: ask_with_a_little() == 503)
        # Content with a length is not collected.
        known = ask(
            f"{head}content-type: x/y\r\ncontent-length: 20000\r\n\r\n".encode() + b"x" * 20_000
        )
        assert json.loads(known.body)["input"] == sha256(b"x" * 20_000)
    eventually("capacity is available again", lambda: ask_with_a_little() == 200)


def test_slow_uploads_do_not_occupy_processes(start, gateway, tmp_path, www, ca):
    with php_fpm(tmp_path / "one", children=1) as only:
        server = served(start, gateway, www, f"unix:{only}")
        head = f"POST / HTTP/1.1\r\nhost: {server.origin.removeprefix('https://')}\r\ncontent-type: x/y\r\n"
        with ExitStack() as senders:
            slow = [senders.enter_context(RawH1(server.origin, ca)) for _ in range(4)]
            for client in slow:
                client.socket.sendall(f"{head}content-length: 10\r\n\r\nhello".encode())
            with RawH1(server.origin, ca) as quick:
                quick.socket.sendall(f"{head}content-length: 5\r\n\r\nquick".encode())
                assert json.loads(quick.receive().body)["input"] == sha256(b"quick")
            for client in slow:
                client.socket.sendall(b"world")
                seen = json.loads(client.receive().body)
                assert (seen["input"], seen["server"]["CONTENT_LENGTH"]) == (
                    sha256(b"helloworld"),
                    "10",
                )


def test_script_does_not_run_for_a_small_aborted_upload(start, gateway, fpm, www, ca):
    ran = gateway.folder / "ran"
    (www / "run.php").write_text(
        f"<?php file_put_contents('{ran}', file_get_contents('php://input') . \"\\n\", FILE_APPEND);"
    )
    server = served(start, gateway, www, f"unix:{fpm}")
    head = f"POST /run.php HTTP/1.1\r\nhost: {server.origin.removeprefix('https://')}\r\n"
    with RawH1(server.origin, ca) as client:
        client.socket.sendall(f"{head}content-length: 10\r\n\r\nhalf".encode())
    server.wait_for_lines(r"POST /run.php (400|-)")
    with RawH1(server.origin, ca) as client:
        client.socket.sendall(f"{head}content-length: 5\r\n\r\nwhole".encode())
        assert client.receive().status == 200
    assert ran.read_text() == "whole\n"


def test_content_without_buffer_space_is_streamed(start, gateway, fpm, www, ca):
    server = served(start, gateway, www, f"unix:{fpm}", ', collect = "1KiB"')
    head = f"POST / HTTP/1.1\r\nhost: {server.origin.removeprefix('https://')}\r\ncontent-type: x/y\r\n"
    with ExitStack() as waiting:
        for _ in range(64):
            client = waiting.enter_context(RawH1(server.origin, ca))
            client.socket.sendall(f"{head}content-length: 1024\r\n\r\n".encode() + b"x" * 1023)
        with RawH1(server.origin, ca) as client:

            def ask_in_pieces() -> bool:
                client.socket.sendall(f"{head}content-length: 1000\r\n\r\n".encode() + b"a" * 500)
                client.socket.sendall(b"b" * 500)
                return json.loads(client.receive().body)["input"] == sha256(b"a" * 500 + b"b" * 500)

            assert all(ask_in_pieces() for _ in range(20))
