"""Our server and client with independent QUIC stacks, over impaired networks.

The cases are those of the QUIC interoperability runner, as far as a proxy and the peers can produce
them.
"""

from __future__ import annotations

import hashlib
import json

import pytest
from aioquic.tls import CipherSuite, Epoch

from conftest import SEED, random_bytes
from harness.clients.aioquic_h3 import h3_connection
from harness.clients.go import GoClient
from harness.pairs import LARGE, PAIRS, SMALL, Pair, h3_crate, run
from harness.server import pronghorn
from harness.udp_proxy import UP, Impairment, UdpProxy


@pytest.fixture(params=PAIRS, ids=lambda pair: pair.id)
def pair(request) -> Pair:
    return request.param


@pytest.fixture
def over(pair, start, identity, files, request):
    """Downloads through a proxy and checks the content; returns the proxy for its counts."""
    server = start(pair.command(files, identity))
    direct = {}

    def download(
        size: int,
        impairment: Impairment | None = None,
        *,
        times: int = 1,
        may_give_up: int = 0,
        **options,
    ) -> UdpProxy:
        if size not in direct:
            direct[size] = pair.download(server.origin + pair.path(size), identity.ca)
            assert (direct[size].status, direct[size].size) == (200, size)
            if pair.server == "pronghorn":
                expected = hashlib.sha256((files / f"{size}.bin").read_bytes()).hexdigest()
                assert direct[size].sha256 == expected
        seed = f"{SEED} {request.node.name}"
        with UdpProxy(server.port, seed=seed, impairment=impairment, **options) as proxy:
            done = 0
            while done < times:
                try:
                    got = pair.download(proxy.origin + pair.path(size), identity.ca)
                except Exception:
                    may_give_up -= 1
                    if may_give_up < 0:
                        raise
                    continue
                assert got == direct[size]
                done += 1
        return proxy

    return download


def test_transfer(over):
    over(LARGE)


def test_transfer_with_5_percent_loss(over):
    proxy = over(LARGE, Impairment(loss=0.05))
    assert proxy.seen["loss"] > 20


def test_transfer_with_reordering(over):
    proxy = over(LARGE, Impairment(reorder=0.1))
    assert proxy.seen["reorder"] > 50


def test_transfer_with_duplicates(over):
    proxy = over(LARGE, Impairment(duplicate=0.1))
    assert proxy.seen["duplicate"] > 50


def test_transfer_with_corruption(over):
    proxy = over(LARGE, Impairment(corrupt=0.02))
    assert proxy.seen["corrupt"] > 10


def test_transfer_over_a_long_path(over):
    over(SMALL, Impairment(delay_seconds=0.3))


def test_handshakes_with_30_percent_loss(over):
    # A client may reach its own handshake timeout: libcurl's is 10 s.
    proxy = over(SMALL, Impairment(loss=0.3), times=5, may_give_up=8)
    assert proxy.seen["loss"] > 5


def test_handshakes_with_corruption(over):
    proxy = over(SMALL, Impairment(corrupt=0.3), times=5, may_give_up=8)
    assert proxy.seen["corrupt"] > 5


def test_transfer_across_a_blackhole(over):
    # No packet passes for a while in mid-transfer; the peers' timers must resume it.
    proxy = over(LARGE, blackhole_at=100, blackhole_seconds=1.5)
    assert proxy.seen["blackhole"] > 0


def test_transfer_across_new_ports(over):
    proxy = over(LARGE, rebind_at=[100, 400])
    assert proxy.seen["rebind"] == 2


def test_transfer_across_a_new_address(over):
    proxy = over(LARGE, rebind_at=[100], rebind_address="127.0.0.2")
    assert proxy.seen["rebind"] == 1


def test_handshake_whose_first_packets_arrive_in_the_wrong_order(over):
    over(SMALL, swap_first=True)


# If the first flight is a single datagram, the second is its retransmission; these clients offer
# post-quantum keys.
LARGE_HELLO = [
    pair
    for pair in PAIRS
    if pair.name in ("quic-go to pronghorn", "curl to pronghorn", "pronghorn to quic-go")
]


@pytest.mark.parametrize("pair", LARGE_HELLO, ids=lambda pair: pair.id)
def test_client_hello_of_several_packets_in_any_order(over):
    proxy = over(SMALL, swap_first=True, record=True)
    (flow,) = proxy.flows.values()
    first_flight = [data for way, data in flow.datagrams[:2] if way == UP]
    assert len(first_flight) == 2, "the ClientHello fits into one packet"
    assert proxy.seen["swap"] == 1


# Cases that only one client supports.


async def test_aioquic_updates_keys_in_mid_transfer(start, identity, files):
    server = start(PAIRS[0].command(files, identity))
    expected = (files / f"{SMALL}.bin").read_bytes()
    async with h3_connection(server.origin, identity.ca) as client:
        for _ in range(5):
            phase = client._quic._cryptos[Epoch.ONE_RTT].key_phase
            client.request_key_update()
            answer = await client.fetch(f"/{SMALL}.bin")
            assert answer.body == expected
            assert client._quic._cryptos[Epoch.ONE_RTT].key_phase != phase


@pytest.mark.parametrize(
    "suite",
    [
        CipherSuite.AES_128_GCM_SHA256,
        CipherSuite.AES_256_GCM_SHA384,
        CipherSuite.CHACHA20_POLY1305_SHA256,
    ],
    ids=lambda suite: suite.name,
)
async def test_aioquic_offers_one_cipher(start, identity, files, suite):
    server = start(PAIRS[0].command(files, identity))
    async with h3_connection(server.origin, identity.ca, cipher_suites=[suite]) as client:
        answer = await client.fetch(f"/{SMALL}.bin")
        assert answer.body == (files / f"{SMALL}.bin").read_bytes()
        assert client._quic.tls.key_schedule.cipher_suite == suite


async def test_aioquic_migrates(start, identity, files):
    """In mid-transfer, with a new connection ID."""
    server = start(PAIRS[0].command(files, identity, "--workers", "2", "--stats"))
    expected = (files / f"{LARGE}.bin").read_bytes()
    async with h3_connection(server.origin, identity.ca) as client:
        for _ in range(3):
            before = client._quic._peer_cid.cid
            download = client.start(f"/{LARGE}.bin")
            await client.head(download)
            client.change_connection_id()
            await client.rebind()
            answer = await client.finish(download)
            assert answer.body == expected
            assert client._quic._peer_cid.cid != before
    server.terminate()
    server.wait()
    assert server.counters()["quic_migrations"] >= 3  # As below.


def test_h3_crate_migrates(start, identity, files):
    """Between two requests."""
    server = start(PAIRS[0].command(files, identity, "--workers", "2", "--stats"))
    responses = h3_crate(f"{server.origin}/{LARGE}.bin", identity.ca, "--rebind", "--count", "4")
    expected = hashlib.sha256((files / f"{LARGE}.bin").read_bytes()).hexdigest()
    assert [(each.status, each.sha256) for each in responses] == [(200, expected)] * 5
    server.terminate()
    server.wait()
    # A busy machine may delay a path's validation until the server returns to the path before.
    assert server.counters()["quic_migrations"] >= 1


def test_h3_crate_sends_many_requests_at_once(start, identity, files):
    server = start(PAIRS[0].command(files, identity))
    responses = h3_crate(f"{server.origin}/{SMALL}.bin", identity.ca, "--count", "500")
    expected = hashlib.sha256((files / f"{SMALL}.bin").read_bytes()).hexdigest()
    assert [(each.status, each.sha256) for each in responses] == [(200, expected)] * 500


def test_quic_go_sends_many_requests_at_once(start, identity, files):
    server = start(PAIRS[0].command(files, identity))
    with GoClient("3", identity.ca) as client:
        done = client.round(f"{server.origin}/{SMALL}.bin", count=500)
    assert (done.errors, done.connections) == ([], 1)
    assert all(each.body == (files / f"{SMALL}.bin").read_bytes() for each in done.responses)


@pytest.mark.parametrize("pair", PAIRS[-2:], ids=lambda pair: pair.id)
def test_uploads(start, identity, tmp_path, pair):
    content = random_bytes(LARGE, "upload")
    (tmp_path / "content").write_bytes(content)
    server = start(pair.command(None, identity))
    get = [pronghorn(), "get", "--http", "3", "--cacert", identity.ca]
    seen = json.loads(run([*get, "--data", tmp_path / "content", f"{server.origin}/request"]))
    assert (seen["method"], seen["size"]) == ("POST", LARGE)
    assert seen["sha256"] == hashlib.sha256(content).hexdigest()
