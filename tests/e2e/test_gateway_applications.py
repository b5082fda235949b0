"""`pronghorn run` in front of independent applications and servers, over all three protocols."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from harness.clients import FETCHERS
from harness.clients.raw_websocket import TEXT, Frame, open_websocket
from harness.foreign import nginx
from harness.gateway import SITE
from harness.process import Process
from harness.response import sha256
from harness.server import REPOSITORY

NGINX = """
access_log off;
types {{ text/plain txt; }}
default_type application/octet-stream;
server {{
    listen {address};
    root www;
    absolute_redirect off;
    gzip on;
    gzip_proxied any;
    gzip_types text/plain;
    gzip_min_length 100;
    add_header x-connection "$connection $connection_requests";
    location = /moved {{ return 301 /page.txt; }}
    location = /refused {{ return 403; }}
}}
"""


@contextmanager
def application(command: list[str | Path]) -> Iterator[str]:
    process = Process(command)
    try:
        yield process.wait_for_lines(r"listening on (http://\S+)")[0][1]
    finally:
        process.stop()


def proxied(start, gateway, address: str, more: str = ""):
    gateway.write(SITE + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"] {more} }}\n')
    return start(gateway.command())


def test_nginx_upstream_is_served(start, gateway, fetcher):
    www = gateway.folder / "www"
    www.mkdir()
    text, big = b"words and words\n" * 100, bytes(range(256)) * 12_000
    (www / "page.txt").write_bytes(text)
    (www / "big.bin").write_bytes(big)
    with nginx(gateway.folder, NGINX) as address:
        origin = f"http://{address}"
        server = proxied(start, gateway, origin)

        def ask(path, *headers, method="GET", body=None):
            return fetcher.fetch(
                server.origin + path, method=method, headers=list(headers), body=body
            )

        page = ask("/page.txt")
        assert (page.status, page.body, page.header("content-type")) == (200, text, "text/plain")
        etag = page.header("etag")
        unchanged = ask("/page.txt", ("if-none-match", etag))
        assert (unchanged.status, unchanged.size, unchanged.header("etag")) == (304, 0, etag)
        part = ask("/page.txt", ("range", "bytes=6-8"))
        assert (part.status, part.body, part.header("content-range")) == (
            206,
            b"and",
            f"bytes 6-8/{len(text)}",
        )
        assert (ask("/big.bin").sha256, ask("/refused").status) == (sha256(big), 403)
        head = ask("/big.bin", method="HEAD")
        assert (head.status, head.header("content-length"), head.size) == (200, str(len(big)), 0)
        assert ask("/moved").header("location") == "/page.txt"
        assert ask("/page.txt", method="POST", body=b"x" * 300_000).status == 405
        connections = {ask("/page.txt").header("x-connection").split()[0] for _ in range(8)}
        assert len(connections) < 8, "connections are not reused"


def test_content_compressed_by_nginx_is_forwarded_unchanged(start, gateway, protocol_fetcher):
    (gateway.folder / "www").mkdir()
    text = b"words and words\n" * 100
    (gateway.folder / "www" / "page.txt").write_bytes(text)
    with nginx(gateway.folder, NGINX) as address:
        origin = f"http://{address}"
        server = proxied(start, gateway, origin)
        page = protocol_fetcher.fetch(
            server.origin + "/page.txt", headers=[("accept-encoding", "gzip")]
        )
        # libcurl decodes the codings that it knows.
        assert (page.status, page.header("content-encoding")) == (200, "gzip")
        assert text in (
            page.body,
            gzip.decompress(page.body) if page.body[:2] == b"\x1f\x8b" else b"",
        )


def test_express_application_is_served(start, gateway, fetcher):
    with application(["node", REPOSITORY / "tests" / "applications" / "express.cjs"]) as origin:
        server = proxied(start, gateway, origin)

        def ask(path, **options):
            return fetcher.fetch(server.origin + path, **options)

        who = json.loads(ask("/who?a=%C3%BC&b").body)
        assert who == {
            "protocol": "https",
            "hostname": "127.0.0.1",
            "ip": "127.0.0.1",
            "secure": True,
            "originalUrl": "/who?a=%C3%BC&b",
        }
        form = [("content-type", "application/x-www-form-urlencoded")]
        posted = ask("/form", method="POST", headers=form, body=b"name=a%20deer")
        assert (posted.status, posted.header("location")) == (303, "/who?name=a%20deer")
        assert posted.header("set-cookie") == "seen=a%20deer; Path=/; HttpOnly; Secure"
        as_json = [("content-type", "application/json")]
        created = ask("/json", method="POST", headers=as_json, body=b'{"a": [1, 2]}')
        assert (created.status, created.body) == (201, b'{"a":[1,2]}')
        assert (
            ask("/json", method="POST", headers=as_json, body=b'"' + b"x" * 5000 + b'"').status
            == 413
        )
        content = bytes(range(256)) * 10_000
        assert ask("/upload", method="PUT", body=content).text() == sha256(content)
        events = ask("/events")
        assert (events.header("content-type"), events.body) == (
            "text/event-stream; charset=utf-8",
            b"data: 1\n\ndata: 2\n\ndata: 3\n\n",
        )
        assert ask("/broken").status == 500
        assert ask("/nowhere").status == 404


def bytes_as_they_are(content: bytes) -> bytes:
    return content


class Counter(grpc.GenericRpcHandler):
    """A service whose messages are strings."""

    def service(self, call):
        def plain(kind, behaviour):
            return kind(behaviour, bytes_as_they_are, bytes_as_they_are)

        return {
            "/test.Counter/Double": plain(grpc.unary_unary_rpc_method_handler, self.double),
            "/test.Counter/Count": plain(grpc.unary_stream_rpc_method_handler, self.count),
            "/test.Counter/Sums": plain(grpc.stream_stream_rpc_method_handler, self.sums),
        }.get(call.method)

    def double(self, message: bytes, context) -> bytes:
        if not message.isdigit():
            context.set_trailing_metadata([("x-detail", "digits only")])
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no number: %")
        return b"%d" % (2 * int(message))

    def count(self, message: bytes, _context) -> Iterator[bytes]:
        yield from (b"%d" % number for number in range(int(message)))

    def sums(self, messages: Iterator[bytes], _context) -> Iterator[bytes]:
        total = 0
        for message in messages:
            total += int(message)
            yield b"%d" % total


@pytest.fixture
def counter() -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Counter(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop(None).wait()


def test_grpc_calls_are_forwarded(start, gateway, counter, ca):
    server = proxied(start, gateway, counter, ', protocol = "http2"')
    credentials = grpc.ssl_channel_credentials(ca.read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{server.port}", credentials) as channel:
        double = channel.unary_unary("/test.Counter/Double")
        assert double(b"21", timeout=60) == b"42"
        with pytest.raises(grpc.RpcError) as refused:
            double(b"no", timeout=60)
        error = refused.value
        assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "no number: %")
        assert ("x-detail", "digits only") in [tuple(pair) for pair in error.trailing_metadata()]
        counted = list(channel.unary_stream("/test.Counter/Count")(b"5000", timeout=60))
        assert counted == [b"%d" % number for number in range(5000)]
        # Each response is awaited before the next message: nothing may be buffered in either
        # direction.
        asked: list[bytes] = [b"1", b"20", b"300"]
        answered = threading.Semaphore(1)

        def questions() -> Iterator[bytes]:
            for message in asked:
                assert answered.acquire(timeout=60)
                yield message

        sums = []
        for total in channel.stream_stream("/test.Counter/Sums")(questions(), timeout=60):
            sums.append(total)
            answered.release()
        assert sums == [b"1", b"21", b"321"]
        with pytest.raises(grpc.RpcError) as unknown:
            channel.unary_unary("/test.Counter/Nothing")(b"", timeout=60)
        assert unknown.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    "others", ["", '[[sites.routes]]\nfiles = "."\n'], ids=["no route", "files"]
)
def test_grpc_service_without_a_route_is_unimplemented(start, gateway, counter, ca, others):
    action = f'proxy = {{ servers = ["{counter}"], protocol = "http2" }}'
    gateway.write(SITE + f'[[sites.routes]]\nmatch = "/test.Counter/*"\n{action}\n' + others)
    server = start(gateway.command())
    credentials = grpc.ssl_channel_credentials(ca.read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{server.port}", credentials) as channel:
        assert channel.unary_unary("/test.Counter/Double")(b"21", timeout=60) == b"42"
        for name in ("/grpc.health.v1.Health/Check", "/pronghorn.toml"):
            with pytest.raises(grpc.RpcError) as unknown:
                channel.unary_unary(name)(b"", timeout=60)
            assert unknown.value.code() == grpc.StatusCode.UNIMPLEMENTED, unknown.value.details()


def test_grpc_call_to_files_is_not_found_over_each_protocol(start, gateway, protocol_fetcher):
    gateway.write(SITE + '[[sites.routes]]\nfiles = "."\n')
    server = start(gateway.command())
    for content_type, status in [
        ("application/grpc", 404),
        ("Application/gRPC-Web+proto", 404),
        ("application/x-www-form-urlencoded", 405),
    ]:
        headers = [("content-type", content_type)]
        answer = protocol_fetcher.fetch(
            server.origin + "/a.B/C", method="POST", headers=headers, body=b"\0" * 5
        )
        assert answer.status == status, content_type


@pytest.mark.parametrize("client", ["go-h1", "go-h2", "quic-go-h3"])
def test_grpc_call_works_over_each_protocol(start, gateway, counter, ca, client):
    server = proxied(start, gateway, counter, ', protocol = "http2"')
    fetcher = next(fetcher for fetcher in FETCHERS if fetcher.name == client).trusting(ca)

    def call(message: bytes):
        framed = b"\0" + len(message).to_bytes(4, "big") + message
        headers = [("content-type", "application/grpc"), ("te", "trailers")]
        return fetcher.fetch(
            server.origin + "/test.Counter/Double", method="POST", headers=headers, body=framed
        )

    answer = call(b"21")
    assert (answer.status, answer.body) == (200, b"\0\0\0\0\x0242")
    if client == "go-h1":
        # Over HTTP/1.1 trailers must be announced, which gRPC servers do not do.
        return
    assert dict(answer.trailers)["grpc-status"] == "0"
    refused = call(b"no")
    assert (refused.status, refused.size) == (200, 0)
    told = dict(refused.headers) | dict(refused.trailers)
    assert (told["grpc-status"], told["x-detail"]) == (
        str(grpc.StatusCode.INVALID_ARGUMENT.value[0]),
        "digits only",
    )


@pytest.fixture
def websocket_echo() -> Iterator[str]:
    from websockets.sync.server import serve

    def echo(connection) -> None:
        for message in connection:
            connection.send(message)

    with serve(echo, "127.0.0.1", 0, max_size=4 << 20) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_websocket_is_forwarded(start, gateway, websocket_echo, ca, version):
    server = proxied(start, gateway, websocket_echo)
    with open_websocket(version, server.origin, ca, "/socket") as socket:
        frames = socket.frames()
        for content in (b"through", b"x" * 1_000_000, b""):
            socket.send([Frame(TEXT, content)])
            received = b""
            while True:
                frame = next(frames)
                received += frame.payload
                if frame.fin:
                    break
            assert received == content
