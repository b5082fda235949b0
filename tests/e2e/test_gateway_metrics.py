"""Metrics of `pronghorn run` after requests of independent clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading

import pytest
from aioquic.tls import CipherSuite

from harness.admin import UnixConnection, ask, metrics
from harness.clients import FETCHERS
from harness.clients.aioquic_h3 import h3_connection
from harness.gateway import SITE, upstream
from harness.waiting import eventually

ANSWER = '[[sites.routes]]\nrespond = "x"\n'


@pytest.fixture
def read(gateway):
    return lambda: metrics(gateway.folder / "state" / "admin.sock")


def run(start, gateway, sites=SITE + ANSWER):
    gateway.write(sites, server='state_dir = "state"')
    return start(gateway.command())


def test_requests_reloads_and_sites_are_counted(start, gateway, read, protocol_fetcher):
    server = run(start, gateway)
    for _ in range(3):
        assert protocol_fetcher.fetch(server.origin + "/").status == 200

    def counted() -> dict[str, float] | None:
        found = read()
        names = (series for series in found if series.startswith("pronghorn_requests_total{"))
        return found if sum(found[series] for series in names) == 3 else None

    # The server may see the end of a response after the client.
    values = eventually("three requests", counted)
    assert f'pronghorn_kernel_udp_drops_total{{port="{server.port}"}}' in values
    assert values['pronghorn_site_http3{site="localhost"}'] == 1
    transport = "quic" if protocol_fetcher.protocol == "HTTP/3" else "tcp"
    handshakes = f'pronghorn_handshake_seconds_count{{transport="{transport}"}}'
    assert values[handshakes] == values['pronghorn_tls_handshakes_total{version="1.3"}'] == 3
    assert values[f'pronghorn_handshake_seconds_bucket{{transport="{transport}",le="+Inf"}}'] == 3
    gateway.file.write_text("[server\n")
    ask(UnixConnection(gateway.folder / "state/admin.sock"), "POST", "/reload")
    assert read()['pronghorn_reloads_total{result="failure"}'] == 1


def test_tls_version_cipher_and_group_are_counted(start, gateway, read, identity):
    server = run(start, gateway)

    def connect(ciphers=None, version=None, curve=None):
        context = ssl.create_default_context(cafile=identity.ca)
        if ciphers:
            context.set_ciphers(ciphers)
        if version:
            context.maximum_version = version
        if curve:
            context.set_ecdh_curve(curve)
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=10) as tcp,
            context.wrap_socket(tcp, server_hostname="localhost"),
        ):
            pass

    connect("ECDHE+CHACHA20", ssl.TLSVersion.TLSv1_2, "prime256v1")
    connect(curve="secp384r1")

    async def quic():
        suites = [CipherSuite.CHACHA20_POLY1305_SHA256]
        async with h3_connection(server.origin, identity.ca, cipher_suites=suites) as client:
            assert (await client.fetch("/")).status == 200

    asyncio.run(quic())
    values = eventually(
        "the counts",
        lambda: (
            sum(found.get(name, 0) for name in NAMES) == 6 and found if (found := read()) else None
        ),
    )
    assert values['pronghorn_tls_handshakes_total{version="1.2"}'] == 1
    assert values['pronghorn_tls_handshakes_total{version="1.3"}'] == 2
    assert values['pronghorn_tls_ciphers_total{cipher="ChaCha20-Poly1305"}'] == 2
    assert values['pronghorn_tls_groups_total{group="secp256r1"}'] >= 1
    assert values['pronghorn_tls_groups_total{group="secp384r1"}'] == 1
    assert values['pronghorn_tls_groups_total{group="other"}'] == 0


NAMES = [f'pronghorn_tls_handshakes_total{{version="{version}"}}' for version in ("1.2", "1.3")] + [
    f'pronghorn_tls_ciphers_total{{cipher="{cipher}"}}'
    for cipher in ("AES-128-GCM", "AES-256-GCM", "ChaCha20-Poly1305")
]


def test_closes_are_counted_by_side_and_code(start, gateway, read, identity):
    server = run(start, gateway)

    async def close(code: int) -> None:
        async with h3_connection(server.origin, identity.ca) as client:
            assert (await client.fetch("/")).status == 200
            client.close(error_code=code)

    async def break_a_rule() -> None:
        async with h3_connection(server.origin, identity.ca) as client:
            assert (await client.fetch("/")).status == 200
            quic = client._quic
            # A second control stream (RFC 9114, section 6.2.1).
            quic.send_stream_data(
                quic.get_next_available_stream_id(is_unidirectional=True), b"\x00\x04\x00"
            )
            client.transmit()
            assert (await client.wait_terminated()).error_code == 0x103

    asyncio.run(close(0x102))
    asyncio.run(close(0x4242))
    asyncio.run(break_a_rule())
    for by, code in (
        ("client", "H3_INTERNAL_ERROR"),
        ("client", "other"),
        ("server", "H3_STREAM_CREATION_ERROR"),
    ):
        series = f'pronghorn_quic_closes_total{{by="{by}",code="{code}"}}'
        eventually(series, lambda series=series: read().get(series) == 1)
    values = eventually(
        "both ends",
        lambda: found if (found := read())["pronghorn_quic_rtt_seconds_count"] >= 3 else None,
    )
    assert values["pronghorn_quic_packets_sent_total"] > 3
    assert values["pronghorn_quic_rtt_seconds_sum"] > 0


def test_open_requests_are_counted_while_open(start, gateway, read, identity):
    fetcher = next(fetcher for fetcher in FETCHERS if fetcher.name == "curl-h2").trusting(
        identity.ca
    )
    asked, go_on = threading.Event(), threading.Event()

    def wait(handler, _content):
        asked.set()
        go_on.wait(30)
        handler.reply(200, b"late")

    with upstream() as up:
        up.routes["/"] = wait
        server = run(start, gateway, SITE + f'[[sites.routes]]\nproxy = "{up.address}"\n')
        client = threading.Thread(target=fetcher.fetch, args=(server.origin + "/",))
        client.start()
        try:
            assert asked.wait(30)
            assert read()["pronghorn_requests_open"] == 1
        finally:
            go_on.set()
            client.join()
        eventually("no open request", lambda: read()["pronghorn_requests_open"] == 0)
