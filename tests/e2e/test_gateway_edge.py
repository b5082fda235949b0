"""Load balancers in front of `pronghorn run`, and HTTP/3 announced step by step."""

from __future__ import annotations

import contextlib
import datetime
import json
import socket
import ssl
import struct

import pytest

from harness.admin import metrics
from harness.clients import FETCHERS
from harness.fastcgi import Asked, application, end, output, sent
from harness.gateway import upstream
from harness.waiting import eventually

SITE = """
[[sites]]
hosts = ["localhost", "127.0.0.1"]
clear_text = "serve"
{tls}
[[sites.routes]]
"""
BOTH = ("127.0.0.1:0", "http://127.0.0.1:0")


def proxy_header(client: str | None, *, command: int = 1, more: bytes = b"") -> bytes:
    """Encodes a header of the PROXY protocol, version 2 (section 2.2 of its specification)."""
    addresses = b"" if client is None else addresses_of(client)
    family = 0 if client is None else 0x21 if ":" in client else 0x11
    head = struct.pack("!BBH", 0x20 | command, family, len(addresses) + len(more))
    return b"\r\n\r\n\0\r\nQUIT\n" + head + addresses + more


def addresses_of(client: str) -> bytes:
    kind = socket.AF_INET6 if ":" in client else socket.AF_INET
    there = "::1" if ":" in client else "127.0.0.1"
    return (
        socket.inet_pton(kind, client)
        + socket.inet_pton(kind, there)
        + struct.pack("!HH", 4000, 443)
    )


def connect(listener, header: bytes, identity) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", listener.port), timeout=20)
    connection.sendall(header)
    if listener.scheme == "http":
        return connection
    context = ssl.create_default_context(cafile=identity.ca)
    return context.wrap_socket(connection, server_hostname="localhost")


def ask(connection: socket.socket) -> bytes:
    """Sends one request; the connection stays open."""
    connection.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer:
        part = connection.recv(65536)
        if not part:
            return answer
        answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_client_address_comes_from_the_proxy_header(start, gateway, identity, scheme):
    with upstream() as up:
        gateway.write(
            SITE + f'proxy = "{up.address}"\n[log]\naccess = "access.log"\nformat = "json"\n',
            server='proxy_protocol = ["127.0.0.1"]',
            listen=BOTH,
        )
        server = start(gateway.command(), listeners=2)
        listener = next(listener for listener in server.listeners if listener.scheme == scheme)
        told = []
        for client, more in (("192.0.2.7", b""), ("2001:db8::7", b"\x04\x00\x01\x00"), (None, b"")):
            with connect(listener, proxy_header(client, more=more), identity) as connection:
                answer = ask(connection)
                assert answer.startswith(b"HTTP/1.1 200 ")
                told.append(
                    dict(json.loads(answer.partition(b"\r\n\r\n")[2])["headers"])["x-forwarded-for"]
                )
        # A load balancer's health check.
        with connect(listener, proxy_header("192.0.2.9", command=0), identity) as connection:
            assert b'"127.0.0.1"' in ask(connection)
        assert told == ["192.0.2.7", "2001:db8::7", "127.0.0.1"]
        server.terminate()
        assert server.wait() == 0, server.lines
        entries = [
            json.loads(line) for line in (gateway.folder / "access.log").read_text().splitlines()
        ]
        assert [entry["client"] for entry in entries] == [*told, "127.0.0.1"]
        assert entries[0]["port"] == 4000


def test_load_balancer_connection_without_a_header_is_closed(start, gateway, identity):
    gateway.write(
        SITE + 'respond = "x"\n[limits]\nhandshake_timeout = "3s"\n',
        server='proxy_protocol = ["127.0.0.0/8"]\nstate_dir = "state"',
        listen=BOTH,
    )
    server = start(gateway.command(), listeners=2)
    clear = next(listener for listener in server.listeners if listener.scheme == "http")
    for wrong in (
        b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"PROXY TCP4 192.0.2.1 127.0.0.1 1 2\r\n",
    ):
        # A close with unread bytes is a reset.
        with (
            connect(clear, wrong, identity) as connection,
            contextlib.suppress(ConnectionResetError),
        ):
            assert connection.recv(100) == b""
    with connect(clear, proxy_header("192.0.2.7")[:10], identity) as silent:
        assert silent.recv(100) == b""
    names = ("pronghorn_proxy_headers_refused_total", "pronghorn_handshakes_timed_out_total")

    def counted() -> list[float]:
        values = metrics(gateway.folder / "state/admin.sock")
        return [values[name] for name in names]

    eventually("all are counted", lambda: counted() == [2, 1])


def test_proxy_header_from_other_addresses_is_rejected(start, gateway, identity):
    with upstream() as up:
        gateway.write(
            SITE + f'proxy = "{up.address}"\n', server='proxy_protocol = ["192.0.2.1"]', listen=BOTH
        )
        server = start(gateway.command(), listeners=2)
        clear = next(listener for listener in server.listeners if listener.scheme == "http")
        with connect(clear, proxy_header("192.0.2.7"), identity) as connection:
            assert ask(connection).startswith(b"HTTP/1.1 400 ")
        with connect(clear, b"", identity) as connection:
            assert b'"x-forwarded-for", "127.0.0.1"' in ask(connection)


def test_limits_apply_to_the_client_behind_the_load_balancer(start, gateway, identity):
    gateway.write(
        SITE + 'respond = "x"\n[limits]\nconnections_per_client = 2\n',
        server='proxy_protocol = ["127.0.0.1"]',
        listen=BOTH,
    )
    server = start(gateway.command(), listeners=2)
    clear = next(listener for listener in server.listeners if listener.scheme == "http")
    open_connections = []
    try:
        for client in ("192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"):
            connection = connect(clear, proxy_header(client), identity)
            open_connections.append(connection)
            assert ask(connection).startswith(b"HTTP/1.1 200 ")
        with (
            connect(clear, proxy_header("192.0.2.1"), identity) as third,
            pytest.raises((ConnectionError, AssertionError)),
        ):
            assert ask(third)
        open_connections.pop(0).close()

        def is_served() -> bool:
            with connect(clear, proxy_header("192.0.2.1"), identity) as again:
                try:
                    return ask(again).startswith(b"HTTP/1.1 200 ")
                except ConnectionError:
                    return False

        eventually("its slot is free", is_served)
    finally:
        for connection in open_connections:
            connection.close()


def test_alt_svc_share_grows_from_none_to_all(start, gateway, identity):
    fetcher = next(fetcher for fetcher in FETCHERS if fetcher.name == "curl-h2").trusting(
        identity.ca
    )
    now = datetime.datetime.now(datetime.UTC)
    announced = []
    for begun in (-1, 0, 3):
        since = (now - datetime.timedelta(days=begun)).strftime("%Y-%m-%dT%H:%M:%SZ")
        ramp_up = f'ramp_up = {{ since = "{since}", takes = "48h" }}'
        gateway.write(
            SITE + 'respond = "x"\n',
            server=f'alt_svc = {{ port = 443, max_age = "1h", {ramp_up} }}',
        )
        server = start(gateway.command())
        announced.append(fetcher.fetch(server.origin + "/").header("alt-svc"))
    assert announced == [None, None, 'h3=":443"; ma=3600']


def test_application_gets_the_client_address_from_the_proxy_header(start, gateway, identity):
    asked: list[Asked] = []
    with application(sent(output(b"content-length: 2\n\nok") + end()), asked) as address:
        gateway.write(
            SITE + f'proxy = "{address}"\n', server='proxy_protocol = ["127.0.0.1"]', listen=BOTH
        )
        server = start(gateway.command(), listeners=2)
        secure = next(listener for listener in server.listeners if listener.scheme == "https")
        with connect(secure, proxy_header("192.0.2.7"), identity) as connection:
            assert ask(connection).startswith(b"HTTP/1.1 200 ")
        told = {name: asked[0].parameter(name) for name in ("REMOTE_ADDR", "REMOTE_PORT", "HTTPS")}
        assert told == {"REMOTE_ADDR": "192.0.2.7", "REMOTE_PORT": "4000", "HTTPS": "on"}
