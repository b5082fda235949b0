"""Chromium's QUIC over impaired networks, and its ClientHello."""

from __future__ import annotations

import hashlib

import pytest

from conftest import SEED
from harness.clients.chromium import NAME, common_flags, protocol_flags, visit
from harness.clients.recorded_hello import X25519_MLKEM768, RecordedHello, recorded_hello
from harness.pairs import LARGE, SMALL
from harness.server import Server, serve_command
from harness.udp_proxy import UP, Impairment, UdpProxy

# Downloads one file after another and reports the content.
SCRIPT = """
const hash = async (name) => {
  const content = await (await fetch(name)).arrayBuffer();
  const bytes = new Uint8Array(await crypto.subtle.digest('SHA-256', content));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
};
globalThis.result = [];
for (const name of FILES) result.push(await hash(name));
"""


@pytest.fixture
def serve(start, identity, files, tmp_path):
    """Serves a page that downloads files of these sizes."""

    def run(sizes: list[int], *flags: str) -> Server:
        for size in set(sizes):
            (tmp_path / f"{size}.bin").write_bytes((files / f"{size}.bin").read_bytes())
        script = SCRIPT.replace("FILES", str([f"{size}.bin" for size in sizes]))
        page = f"<!doctype html><title>page</title><link rel=icon href=data:,><script type=module>{script}</script>"
        (tmp_path / "index.html").write_text(page)
        return start(serve_command(tmp_path, identity, "--stats", "--grace", "0.5", *flags))

    return run


@pytest.fixture
def load(identity, files):
    """Loads that page through a proxy and checks the content, over one connection."""

    def run(proxy: UdpProxy, sizes: list[int]) -> None:
        flags = common_flags(identity.spki_hash) + protocol_flags("h3", NAME, proxy.port)
        (visited,) = visit(f"https://{NAME}:{proxy.port}/", flags)["visits"]
        expected = [
            hashlib.sha256((files / f"{size}.bin").read_bytes()).hexdigest() for size in sizes
        ]
        assert visited["result"] == expected
        assert {request["protocol"] for request in visited["requests"]} == {"h3"}
        assert len({request["connection"] for request in visited["requests"]}) == 1

    return run


def test_chromium_transfer_with_5_percent_loss(serve, load):
    sizes = [LARGE]
    server = serve(sizes)
    with UdpProxy(
        server.port, seed=f"{SEED} chromium loss", impairment=Impairment(loss=0.05)
    ) as proxy:
        load(proxy, sizes)
    assert proxy.seen["loss"] > 20


def test_chromium_transfer_with_reordering(serve, load):
    sizes = [LARGE]
    server = serve(sizes)
    with UdpProxy(
        server.port, seed=f"{SEED} chromium order", impairment=Impairment(reorder=0.1)
    ) as proxy:
        load(proxy, sizes)
    assert proxy.seen["reorder"] > 50


def test_chromium_transfer_with_corruption(serve, load):
    sizes = [LARGE]
    server = serve(sizes)
    with UdpProxy(
        server.port, seed=f"{SEED} chromium corruption", impairment=Impairment(corrupt=0.02)
    ) as proxy:
        load(proxy, sizes)
    assert proxy.seen["corrupt"] > 10


def test_chromium_transfer_across_new_ports(serve, load):
    sizes = [LARGE]
    server = serve(sizes, "--workers", "2")
    with UdpProxy(server.port, seed=f"{SEED} chromium rebind", rebind_at=[100, 400]) as proxy:
        load(proxy, sizes)
    assert proxy.seen["rebind"] == 2
    server.terminate()
    server.wait()
    # A busy machine may delay a path's validation until the server returns to the path before.
    assert server.counters()["quic_migrations"] >= 2


def test_chromium_transfer_across_a_new_address(serve, load):
    sizes = [LARGE]
    server = serve(sizes)
    moves = {"rebind_at": [100], "rebind_address": "127.0.0.2"}
    with UdpProxy(server.port, seed=f"{SEED} chromium address", **moves) as proxy:
        load(proxy, sizes)
    assert proxy.seen["rebind"] == 1


def test_chromium_proves_its_address_after_a_retry(serve, load):
    server = serve([SMALL], "--limit", "open_handshakes=0")
    with UdpProxy(server.port, seed="retry") as proxy:
        load(proxy, [SMALL])
    server.terminate()
    server.wait()
    assert server.counters()["quic_retries_sent"] >= 1


def test_chromium_client_hello_of_several_packets_in_any_order(serve, load):
    """Post-quantum, larger than a packet, its fragments and extensions shuffled."""
    server = serve([SMALL])
    hellos: list[RecordedHello] = []
    for swap_first in (False, True):
        with UdpProxy(server.port, seed="hello", swap_first=swap_first, record=True) as proxy:
            load(proxy, [SMALL])
            flow = next(iter(proxy.flows.values()))
        assert (proxy.seen["swap"] > 0) == swap_first
        hellos.append(recorded_hello(data for way, data in flow.datagrams if way == UP))
    for each in hellos:
        assert X25519_MLKEM768 in each.key_shares
        assert each.packets >= 2
        assert each.offsets != sorted(each.offsets)
    first, second = (each.extensions for each in hellos)
    assert sorted(first) == sorted(second)
    assert first != second
