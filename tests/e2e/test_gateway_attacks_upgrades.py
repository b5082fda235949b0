"""Requests for another protocol that would bypass routes, or use up an upstream's connections."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import pytest
from aioquic.h3.connection import ErrorCode

from harness.admin import metrics
from harness.clients.aioquic_h3 import StreamResetError, h3_connection
from harness.clients.h2_frames import Exchange, H2Client
from harness.clients.raw_h1 import RawH1
from harness.clients.raw_websocket import TEXT, Frame, open_websocket
from harness.gateway import SITE
from harness.waiting import eventually

VERSIONS = ("1.1", "2", "3")
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455 section 1.3."""


@dataclass
class Switching:
    """An upstream that accepts each upgrade except at `/ignored`, and records what it received;
    `/stream` never ends.
    """

    address: str
    heads: list[str] = field(default_factory=list)


@contextmanager
def switching():
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server = Switching(f"http://127.0.0.1:{listener.getsockname()[1]}")
    connections = []

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            stream = connection.makefile("rb")
            while line := stream.readline():
                head = [line.decode().strip()]
                while (line := stream.readline().decode().strip()) != "":
                    name, _, value = line.partition(": ")
                    head.append(f"{name.lower()}: {value}")
                server.heads.append("\n".join(head))
                fields = dict(line.split(": ", 1) for line in head[1:])
                path = head[0].split()[1]
                if path == "/stream":
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
                    )
                elif "upgrade" in fields and path != "/ignored":
                    connection.sendall(granted(fields))
                    while data := connection.recv(65536):
                        connection.sendall(data)
                    return
                else:
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret")

    def run() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def granted(fields: dict[str, str]) -> bytes:
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "connection: upgrade",
        f"upgrade: {fields['upgrade']}",
    ]
    if key := fields.get("sec-websocket-key"):
        accept = base64.b64encode(hashlib.sha1(key.encode() + MAGIC).digest()).decode()
        lines.append(f"sec-websocket-accept: {accept}")
    return "\r\n".join([*lines, "", ""]).encode()


def connect(authority: str, path: str, protocol: str) -> list[tuple[str, str]]:
    return [
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "https"),
        (":authority", authority),
        (":path", path),
        ("sec-websocket-version", "13"),
    ]


def start_over_http2(client: H2Client, path: str, protocol: str = "websocket") -> Exchange:
    while not client.http.remote_settings.enable_connect_protocol:
        assert client.read()
    stream = client.http.get_next_available_stream_id()
    exchange = client.exchanges[stream] = Exchange()
    client.http.send_headers(stream, connect(client.authority, path, protocol))
    client.flush()
    while exchange.headers is None:
        assert exchange.reset is None, exchange.reset
        assert client.read()
    return exchange


async def ask_over_http3(server, ca, path: str, protocol: str) -> tuple[int, bytes]:
    async with h3_connection(server.origin, ca) as client:
        while client.http.received_settings is None:
            await asyncio.sleep(0.001)
        fields = connect(client.authority, path, protocol)
        exchange = client.start_fields([(name.encode(), value.encode()) for name, value in fields])
        await client.head(exchange)
        status = int(dict(exchange.headers)[b":status"])
        if status != 200:
            await asyncio.wait_for(exchange.done, 20)
        return status, bytes(exchange.body)


def ask(version: str, server, ca, path: str, protocol: str = "websocket") -> tuple[int, bytes]:
    """Returns the status of an extended CONNECT, and the content of a response other than 2xx."""
    if version == "3":
        return asyncio.run(ask_over_http3(server, ca, path, protocol))
    with H2Client(server.origin, ca) as client:
        exchange = start_over_http2(client, path, protocol)
        status = int(dict(exchange.headers)[":status"])
        while status != 200 and not exchange.ended and exchange.reset is None and client.read():
            pass
        return status, bytes(exchange.body)


@pytest.fixture
def switched():
    with switching() as server:
        yield server


def routed(address: str, more: str = "", upstream: str = "") -> str:
    secret = '[[sites.routes]]\nmatch = "/admin/*"\nrespond = { status = 403 }\n'
    return (
        SITE
        + secret
        + f'[[sites.routes]]\nproxy = "app"\n{more}\n[upstreams.app]\nservers = ["{address}"]\n{upstream}\n'
    )


@pytest.mark.parametrize("layers", ["", 'layers = ["compress"]'], ids=["bare", "layered"])
def test_upgrade_to_an_unlisted_protocol_is_dropped_over_http1(
    start, gateway, switched, ca, layers
):
    gateway.write(routed(switched.address, layers))
    server = start(gateway.command())
    for protocol in ("h2c", "connect-udp", "h2c, websocket", "TLS/1.0", "a b"):
        with RawH1(server.origin, ca) as raw:
            connection = "Upgrade, HTTP2-Settings"
            fields = [
                ("Connection", connection),
                ("Upgrade", protocol),
                ("HTTP2-Settings", "AAMAAABk"),
            ]
            answer = raw.fetch("/", headers=fields)
            assert (answer.status, answer.body) == (200, b"secret"), protocol
            # The connection continues in HTTP.
            assert raw.fetch("/admin/secret").status == 403
    assert len(switched.heads) == 5
    for head in switched.heads:
        assert not [
            line
            for line in head.splitlines()
            if line.startswith(("upgrade", "http2-settings", "connection: up"))
        ]


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("layers", ["", 'layers = ["compress"]'], ids=["bare", "layered"])
def test_extended_connect_for_an_unlisted_protocol_is_501(
    start, gateway, switched, ca, version, layers
):
    gateway.write(routed(switched.address, layers))
    server = start(gateway.command())
    for protocol in ("h2c", "connect-udp", "connect-ip", "WebSocket"):
        assert ask(version, server, ca, "/", protocol)[0] == 501, protocol
    for protocol in ("websocket, h2c", "a b"):
        if version == "2":
            assert ask(version, server, ca, "/", protocol)[0] == 501, protocol
        else:
            # The head is malformed there.
            with pytest.raises(StreamResetError) as reset:
                ask(version, server, ca, "/", protocol)
            assert reset.value.code == ErrorCode.H3_MESSAGE_ERROR
    assert switched.heads == []
    assert ask(version, server, ca, "/")[0] == 200


@pytest.mark.parametrize("version", ["2", "3"])
def test_upgrade_to_a_listed_protocol_is_forwarded(start, gateway, switched, ca, version):
    gateway.write(routed(switched.address, 'upgrades = { protocols = ["own-protocol"] }'))
    server = start(gateway.command())
    assert ask(version, server, ca, "/", "own-protocol")[0] == 200
    assert ask(version, server, ca, "/")[0] == 501
    assert "upgrade: own-protocol" in switched.heads[0]


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("layers", ["", 'layers = ["compress"]'], ids=["bare", "layered"])
def test_extended_connect_ignored_by_the_upstream_is_502(
    start, gateway, switched, ca, version, layers
):
    gateway.write(routed(switched.address, layers))
    server = start(gateway.command())
    status, content = ask(version, server, ca, "/ignored")
    assert (status, b"secret" in content) == (502, False)
    assert len(switched.heads) == 1


def test_upgrade_ignored_by_the_upstream_over_http1_is_a_get(start, gateway, switched, ca):
    gateway.write(routed(switched.address))
    server = start(gateway.command())
    with RawH1(server.origin, ca) as raw:
        answer = raw.fetch(
            "/ignored", headers=[("connection", "upgrade"), ("upgrade", "websocket")]
        )
        assert (answer.status, answer.body) == (200, b"secret")


@pytest.mark.parametrize("version", ["2", "3"])
def test_extended_connect_to_local_routes_opens_no_tunnel(start, gateway, ca, version):
    (gateway.folder / "www").mkdir()
    (gateway.folder / "www" / "index.html").write_text("secret")
    gateway.write(
        SITE
        + '[[sites.routes]]\nmatch = "/text"\nrespond = "secret"\n[[sites.routes]]\nfiles = "www"\n'
    )
    server = start(gateway.command())
    for path in ("/", "/text"):
        status, content = ask(version, server, ca, path)
        assert (status, b"secret" in content) == (501, False), path


@pytest.mark.parametrize("version", VERSIONS)
def test_tunnels_do_not_use_upstream_connections_of_others(
    start, gateway, switched, ca, protocol_fetcher, version
):
    gateway.write(routed(switched.address, upstream='connections = 4\nconnect_timeout = "20s"'))
    server = start(gateway.command())
    with ExitStack() as held:
        for _ in range(8):
            held.enter_context(open_websocket(version, server.origin, ca))
        assert protocol_fetcher.fetch(server.origin + "/").body == b"secret"


def test_streams_do_not_use_upstream_connections_of_others(
    start, gateway, switched, ca, protocol_fetcher
):
    gateway.write(routed(switched.address, upstream='connections = 4\nconnect_timeout = "20s"'))
    server = start(gateway.command())
    with H2Client(server.origin, ca) as client:
        streams = [client.start("/stream") for _ in range(8)]
        while not all(client.exchanges[stream].body for stream in streams):
            assert client.read()
        assert protocol_fetcher.fetch(server.origin + "/").body == b"secret"


def test_slow_uploads_do_not_use_upstream_connections_of_others(
    start, gateway, switched, ca, protocol_fetcher
):
    gateway.write(routed(switched.address, upstream='connections = 4\nconnect_timeout = "20s"'))
    server = start(gateway.command())
    with H2Client(server.origin, ca) as client:
        for _ in range(4):
            client.start("/upload", method="POST", headers=[("content-length", "1000")], end=False)
        eventually("all requests are open", lambda: len(switched.heads) == 4)
        assert protocol_fetcher.fetch(server.origin + "/").body == b"secret"


def test_long_responses_are_limited(start, gateway, switched, ca, protocol_fetcher):
    gateway.write(
        routed(
            switched.address, upstream='connections = 2\nlong_responses = 2\nconnect_timeout = "8s"'
        )
    )
    server = start(gateway.command())
    with H2Client(server.origin, ca) as client:
        streams = [client.start("/stream") for _ in range(4)]
        while not all(client.exchanges[stream].body for stream in streams):
            assert client.read()
        assert protocol_fetcher.fetch(server.origin + "/").status == 503


@pytest.mark.parametrize("version", VERSIONS)
def test_idle_tunnel_times_out(start, gateway, switched, ca, version):
    gateway.write(
        routed(switched.address, 'upgrades = { idle_timeout = "4s" }'), server='state_dir = "state"'
    )
    server = start(gateway.command())
    socket_path = gateway.folder / "state" / "admin.sock"
    with open_websocket(version, server.origin, ca) as wire:
        began = time.monotonic()
        # A tunnel with traffic lives longer than that.
        while time.monotonic() - began < 5:
            wire.send([Frame(TEXT, b"x")])
            assert wire.receive_bytes()
            time.sleep(0.2)
        assert metrics(socket_path)["pronghorn_upstream_tunnels_open"] == 1
        while wire.receive_bytes():
            pass
    eventually(
        "its slot is free", lambda: metrics(socket_path)["pronghorn_upstream_tunnels_open"] == 0
    )
    eventually(
        "it is counted",
        lambda: metrics(socket_path)["pronghorn_upstream_tunnels_timed_out_total"] == 1,
    )


@pytest.mark.parametrize(
    ("bound", "status", "reason"), [("per_client", 429, "client"), ("open", 503, "route")]
)
@pytest.mark.parametrize("version", VERSIONS)
def test_tunnels_are_limited_per_client_and_per_route(
    start, gateway, switched, ca, version, bound, status, reason
):
    gateway.write(
        routed(switched.address, f"upgrades = {{ {bound} = 2 }}"),
        server='state_dir = "state"',
        workers=2,
    )
    server = start(gateway.command())
    with open_websocket(version, server.origin, ca), open_websocket(version, server.origin, ca):
        if version == "1.1":
            with RawH1(server.origin, ca) as raw:
                fields = [
                    ("connection", "upgrade"),
                    ("upgrade", "websocket"),
                    ("sec-websocket-key", "AAAA"),
                ]
                assert raw.fetch("/", headers=fields).status == status
        else:
            assert ask(version, server, ca, "/")[0] == status
    counts = metrics(gateway.folder / "state" / "admin.sock")
    assert counts[f'pronghorn_upstream_tunnels_refused_total{{reason="{reason}"}}'] == 1

    def is_free() -> bool:
        try:
            with open_websocket(version, server.origin, ca):
                return True
        except AssertionError:
            return False

    eventually("slots are free again", is_free)
