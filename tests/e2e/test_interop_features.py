"""Features beyond a plain transfer, with independent QUIC stacks: sessions, Retry, key updates,
paths, versions.
"""

from __future__ import annotations

import hashlib
import json

import pytest
from aioquic.quic.packet import QuicProtocolVersion

from harness.clients.aioquic_h3 import h3_connection
from harness.clients.go import GoClient
from harness.pairs import LARGE, PAIRS, SMALL, Got, Pair, by_pronghorn, h3_crate_says, run
from harness.server import Server, pronghorn
from harness.udp_proxy import UP, UdpProxy
from harness.waiting import eventually

VERSIONS = [QuicProtocolVersion.VERSION_2, QuicProtocolVersion.VERSION_1]
TO_OTHERS = [pair for pair in PAIRS if pair.server != "pronghorn"]
OURS = Pair("pronghorn to pronghorn", by_pronghorn, "pronghorn")


def whole(files, size: int) -> Got:
    content = (files / f"{size}.bin").read_bytes()
    return Got(200, size, hashlib.sha256(content).hexdigest())


def got(response) -> Got:
    return Got(response.status, response.size, response.sha256)


@pytest.fixture
def serve(start, identity, files):
    """Starts our server over the common files; it prints its counters at exit."""

    def run(*flags: str) -> Server:
        return start(OURS.command(files, identity, "--stats", "--grace", "0.5", *flags))

    return run


def counters(server: Server) -> dict[str, int]:
    server.terminate()
    server.wait()
    return server.counters()


# Sessions and early data. aioquic against our server: test_early_data.py.


def test_quic_go_gets_an_answer_to_early_data(serve, identity, files):
    server = serve()
    attempts = 20
    with GoClient("3", identity.ca) as client:
        first = client.round(f"{server.origin}/{SMALL}.bin")
        assert (first.quic["resumed"], first.quic["early_data"]) == (False, False)
        for connections in range(2, 2 + attempts):
            early = client.round(f"{server.origin}/{SMALL}.bin", method="GET_0RTT", reconnect=True)
            assert (early.errors, early.connections) == ([], connections)
            assert got(early.responses[0]) == whole(files, SMALL)
            assert (early.quic["resumed"], early.quic["early_data"]) == (True, True)
    seen = counters(server)
    assert (seen["early_data_accepted"], seen["quic_resumed"]) == (attempts, attempts)
    # A client that is too slow to send its request before the handshake ends sends it afterwards.
    assert 1 <= seen["requests_early"] <= attempts


def test_quic_go_resumes_without_early_data(serve, identity, files):
    server = serve("--early-data", "off")
    with GoClient("3", identity.ca) as client:
        client.round(f"{server.origin}/{SMALL}.bin")
        again = client.round(f"{server.origin}/{SMALL}.bin", method="GET_0RTT", reconnect=True)
        assert got(again.responses[0]) == whole(files, SMALL)
        assert (again.quic["resumed"], again.quic["early_data"]) == (True, False)
    seen = counters(server)
    assert (seen["requests_early"], seen["quic_resumed"]) == (0, 1)


def test_h3_crate_gets_an_answer_to_early_data(serve, identity, files):
    server = serve()
    attempts = 10
    for _ in range(attempts):
        said = h3_crate_says(f"{server.origin}/{SMALL}.bin", identity.ca, "--early-data")
        assert [each["sha256"] for each in said["responses"]] == [whole(files, SMALL).sha256] * 2
        assert said["early_data"]
    seen = counters(server)
    assert (seen["early_data_accepted"], seen["quic_resumed"]) == (attempts, attempts)
    assert 1 <= seen["requests_early"] <= attempts  # As above.


def ask(server: Server, identity, *flags: str) -> dict:
    """Returns what another server reports about a request of our client."""
    get = [pronghorn(), "get", "--http", "3", "--cacert", identity.ca]
    return json.loads(run([*get, *flags, f"{server.origin}/request"]))


@pytest.mark.parametrize("pair", TO_OTHERS, ids=lambda pair: pair.id)
def test_gets_an_answer_to_early_data(start, identity, pair):
    server = start(pair.command(None, identity))
    for _ in range(20):
        said = ask(server, identity, "--early-data", "--repeat", "2")
        assert (said["method"], said["resumed"]) == ("GET", True)
        # A client that is too slow to send its request before the handshake ends sends it afterwards.
        if said["early"]:
            break
    assert said["early"]


@pytest.mark.parametrize("pair", TO_OTHERS, ids=lambda pair: pair.id)
def test_resumes_without_early_data(start, identity, pair):
    server = start(pair.command(None, identity))
    said = ask(server, identity, "--repeat", "2")
    assert (said["resumed"], said["early"]) == (True, False)


# Retry.


@pytest.mark.parametrize("pair", [*PAIRS, OURS], ids=lambda pair: pair.id)
def test_proves_its_address_after_a_retry(start, identity, files, pair):
    ours = pair.server == "pronghorn"
    flags = ["--stats", "--limit", "open_handshakes=0"] if ours else ["--retry"]
    server = start(pair.command(files, identity, *flags))
    with UdpProxy(server.port, seed="retry", record=True) as proxy:
        answer = pair.download(proxy.origin + pair.path(SMALL), identity.ca)
        assert (answer.status, answer.size) == (200, SMALL)
        (flow,) = proxy.flows.values()
    _, first = next(each for each in flow.datagrams if each[0] != UP)
    # RFC 9000 section 17.2.5: a long header of type 3.
    assert first[0] & 0xF0 == 0xF0
    if ours:
        assert answer == whole(files, SMALL)
        assert counters(server)["quic_retries_sent"] >= 1


# Keys.


def test_quic_go_updates_keys_in_mid_transfer(serve, identity, files):
    # quic-go does so by itself once 100 packets with the first keys have arrived and the handshake
    # is confirmed; the confirmation can get lost.
    server = serve()
    with GoClient("3", identity.ca) as client:

        def updated():
            transfer = client.round(f"{server.origin}/{LARGE}.bin")
            return transfer if transfer.quic["key_updates"] == 1 else None

        first = eventually("an update of the keys", updated)
        # If only one side had new keys, the transfer would not get this far.
        second = client.round(f"{server.origin}/{LARGE}.bin")
    assert [got(each.responses[0]) for each in (first, second)] == [whole(files, LARGE)] * 2
    assert second.connections == 1


def test_h3_crate_updates_keys_in_mid_transfer(serve, identity, files):
    server = serve()
    said = h3_crate_says(
        f"{server.origin}/{LARGE}.bin", identity.ca, "--update-keys", "--count", "2"
    )
    assert [each["sha256"] for each in said["responses"]] == [whole(files, LARGE).sha256] * 2


@pytest.mark.parametrize("pair", TO_OTHERS, ids=lambda pair: pair.id)
def test_takes_new_keys_in_mid_transfer(start, identity, pair):
    server = start(pair.command(None, identity))
    # quic-go updates its keys by itself after it has sent 100 packets.
    path = pair.path(LARGE) if pair.server == "quic-go" else f"/new-keys/{LARGE}"
    answer = pair.download(server.origin + path, identity.ca)
    assert (answer.status, answer.size) == (200, LARGE)
    if pair.server == "quic-go":
        assert ask(server, identity)["key_updates"] == 1


@pytest.mark.parametrize(
    "cipher", ["AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256"]
)
@pytest.mark.parametrize("pair", TO_OTHERS[1:], ids=lambda pair: pair.id)
def test_takes_the_one_cipher_of_the_server(start, identity, pair, cipher):
    server = start(pair.command(None, identity, "--cipher", cipher))
    assert ask(server, identity)["cipher"] == cipher


# Paths and versions.


def test_quic_go_migrates(serve, identity, files):
    """In mid-transfer: a path from another port is validated first, then the connection moves."""
    server = serve("--workers", "2")
    with GoClient("3", identity.ca, flags=["-can-migrate"]) as client:
        for _ in range(3):
            moved = client.round(f"{server.origin}/{LARGE}.bin", migrate=True)
            assert (moved.errors, moved.connections) == ([], 1)
            assert got(moved.responses[0]) == whole(files, LARGE)
    # A busy machine may delay a path's validation until the server returns to the path before.
    assert counters(server)["quic_migrations"] >= 3


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_transfer_over_ipv6(start, identity, files, pair):
    server = start(pair.command(files, identity, host="::1"))
    assert server.origin.startswith("https://[::1]:")
    answer = pair.download(server.origin + pair.path(SMALL), identity.ca)
    assert (answer.status, answer.size) == (200, SMALL)
    if pair.server == "pronghorn":
        assert answer == whole(files, SMALL)


async def test_aioquic_offers_version_2_and_gets_version_1(serve, identity, files):
    server = serve()
    versions = {"original_version": QuicProtocolVersion.VERSION_2, "supported_versions": VERSIONS}
    async with h3_connection(server.origin, identity.ca, **versions) as client:
        answer = await client.fetch(f"/{SMALL}.bin")
        assert answer.body == (files / f"{SMALL}.bin").read_bytes()
        assert client._quic._version == 1
    # A client that waits for the first one repeats its packet.
    assert counters(server)["version_negotiations_sent"] >= 1


def test_quic_go_offers_version_2_and_gets_version_1(serve, identity, files):
    server = serve()
    with GoClient("3", identity.ca, flags=["-offer-v2"]) as client:
        answer = client.round(f"{server.origin}/{SMALL}.bin")
    assert got(answer.responses[0]) == whole(files, SMALL)
    assert answer.quic["version"] == "v1"
    assert counters(server)["version_negotiations_sent"] >= 1
