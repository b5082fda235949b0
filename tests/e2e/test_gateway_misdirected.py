"""Requests for a host on a connection with another site's certificate (RFC 9110 section 7.4)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from http.client import HTTPResponse

import h2.connection
import h2.events
import pytest

from harness.certificates import identity_for
from harness.clients.aioquic_h3 import h3_connection


@pytest.fixture
def sites(start, gateway, tmp_path):
    """Sites with their own certificates, except that c uses a's; w's also covers names below
    w.test.
    """
    files = {
        name: identity_for(tmp_path / name, hosts)
        for name, hosts in [
            ("a", ["a.test"]),
            ("b", ["b.test"]),
            ("w", ["w.test", "*.w.test"]),
            ("x", ["x.w.test"]),
        ]
    }
    routed = ""
    for identity, hosts in [
        ("a", '"a.test", "also-a.test"'),
        ("b", '"b.test"'),
        ("a", '"c.test"'),
        ("w", '"w.test"'),
        ("x", '"x.w.test"'),
    ]:
        cert, key = files[identity]
        routed += f'[[sites]]\nhosts = [{hosts}]\ntls = {{ cert = "{cert}", key = "{key}" }}\n'
        routed += '[[sites.routes]]\nrespond = "here"\n'

    def run(server: str = ""):
        gateway.write(routed, server=server)
        return start(gateway.command())

    return run


def ask_http1(port: int, name: str | None, hosts: list[str]) -> list[int]:
    with connected(port, name, "http/1.1") as client:
        statuses = []
        for host in hosts:
            client.sendall(f"GET / HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            answer = HTTPResponse(client)
            answer.begin()
            answer.read()
            statuses.append(answer.status)
        return statuses


def ask_http2(port: int, name: str | None, hosts: list[str]) -> list[int]:
    with connected(port, name, "h2") as client:
        http2 = h2.connection.H2Connection()
        http2.initiate_connection()
        streams = {}
        for host in hosts:
            stream = http2.get_next_available_stream_id()
            fields = [
                (":method", "GET"),
                (":scheme", "https"),
                (":authority", host),
                (":path", "/"),
            ]
            http2.send_headers(stream, fields, end_stream=True)
            streams[stream] = None
        client.sendall(http2.data_to_send())
        while None in streams.values():
            for event in http2.receive_data(client.recv(65536)):
                if isinstance(event, h2.events.ResponseReceived):
                    streams[event.stream_id] = int(dict(event.headers)[b":status"])
        return list(streams.values())


def ask_http3(port: int, name: str | None, hosts: list[str]) -> list[int]:
    async def run() -> list[int]:
        options = {"verify_mode": ssl.CERT_NONE, **({"server_name": name} if name else {})}
        async with h3_connection(f"https://127.0.0.1:{port}", None, **options) as client:
            statuses = []
            for host in hosts:
                fields = [
                    (":method", "GET"),
                    (":scheme", "https"),
                    (":authority", host),
                    (":path", "/"),
                ]
                exchange = client.start_fields(
                    [(field.encode(), value.encode()) for field, value in fields]
                )
                statuses.append((await client.finish(exchange)).status)
            return statuses

    return asyncio.run(run())


def connected(port: int, name: str | None, alpn: str) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([alpn])
    return context.wrap_socket(
        socket.create_connection(("127.0.0.1", port), timeout=60), server_hostname=name
    )


VERSIONS = pytest.mark.parametrize("ask", [ask_http1, ask_http2, ask_http3], ids=["1.1", "2", "3"])


@VERSIONS
def test_host_outside_the_certificate_is_misdirected(sites, ask):
    port = sites().port
    # c has the certificate of a; also-a is a name of the same site; the second time the result is
    # cached.
    hosts = [
        "a.test",
        "b.test",
        "c.test",
        "also-a.test",
        "A.test",
        "b.test",
        "x.w.test",
        f"a.test:{port}",
    ]
    assert ask(port, "a.test", hosts) == [200, 421, 200, 200, 200, 421, 421, 200]
    assert ask(port, "b.test", ["a.test", "b.test"]) == [421, 200]


@VERSIONS
def test_host_covered_by_the_certificate_shares_the_connection(sites, ask):
    port = sites().port
    assert ask(port, "w.test", ["w.test", "x.w.test", "a.test"]) == [200, 200, 421]
    # Not in the other direction.
    assert ask(port, "x.w.test", ["x.w.test", "w.test"]) == [200, 421]


@VERSIONS
def test_client_without_sni_may_request_any_host(sites, ask):
    assert ask(sites().port, None, ["a.test", "b.test"]) == [200, 200]


@VERSIONS
def test_trusted_proxy_may_request_any_host(sites, ask):
    assert ask(sites('trusted_proxies = ["127.0.0.1"]').port, "a.test", ["a.test", "b.test"]) == [
        200,
        200,
    ]
