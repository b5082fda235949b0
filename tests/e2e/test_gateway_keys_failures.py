"""Signers of `pronghorn run` that are slow, hang, end or lie: which clients notice, and which not."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.clients.go import GoClient, RequestFailedError
from harness.keys import FROM_SIGNER, Client, Edge, RunningSigner, pending
from harness.waiting import DEADLINE_SECONDS, eventually

INTERNAL_ERROR = 80
"""Alert of TLS (RFC 8446 section 6)."""

CRYPTO_ERROR = 0x100
"""First of QUIC's codes for alerts (RFC 9001 section 4.8)."""

SOON = "500ms"
"""Time for a signature in tests in which signatures time out."""

WITH_A_FILE = ["signer:vault", "p256-key.pem"]


@pytest.fixture
def with_file(edge) -> Edge:
    """Returns the files, with the key of the site in a file too."""
    edge.write_key("p256", edge.signer.keys["p256"])
    return edge


def is_signed_by_file(edge: Edge, client: Client) -> bool:
    """Connects; returns whether the signer is skipped, and the key in the file signs."""
    before = edge.key("signatures_total", "p256-key.pem")
    assert client.fetch() == b"elsewhere"
    after = edge.key("signatures_total", "p256-key.pem")
    return after > before and edge.key("source_skipped", "signer:vault") == 1


def is_signed_by_signer(edge: Edge, client: Client) -> bool:
    before = edge.key("signatures_total", "signer:vault")
    assert client.fetch() == b"elsewhere"
    after = edge.key("signatures_total", "signer:vault")
    return after > before and edge.key("source_skipped", "signer:vault") == 0


# A slow signer.


def test_established_connections_and_other_sites_go_on_while_handshakes_wait(
    edge, faulty_signer, run_edge
):
    client = run_edge(FROM_SIGNER, signers={"vault": [faulty_signer.address]})
    each = 25

    async def over_quic() -> list[bytes]:
        return await asyncio.gather(*(client.fetch_h3() for _ in range(each)))

    async def go_on() -> None:
        async with client.h3() as h3:
            h3.authority = f"localhost:{client.port}"
            assert (await h3.fetch("/")).text() == "elsewhere"
            with client.h2() as h2, ThreadPoolExecutor(each + 1) as threads:
                assert h2.fetch("/").text() == "elsewhere"
                faulty_signer.fault = "hold"
                quic = threads.submit(asyncio.run, over_quic())
                tcp = [threads.submit(client.fetch) for _ in range(each)]
                eventually("all wait", lambda: len(faulty_signer.held) == 2 * each)
                for _ in range(20):
                    assert h2.fetch("/").text() == "elsewhere"
                    assert (await h3.fetch("/")).text() == "elsewhere"
                assert client.fetch("127.0.0.1") == await client.fetch_h3("127.0.0.1") == b"here"
                values = edge.metrics()
                for transport in ("tcp", "quic"):
                    parked = f'pronghorn_handshakes_parked{{transport="{transport}"}}'
                    assert values[parked] == each
                assert not any(future.done() for future in [quic, *tcp])
                faulty_signer.release()
                results = [*quic.result(DEADLINE_SECONDS), *(one.result() for one in tcp)]
                assert results == [b"elsewhere"] * 2 * each

    asyncio.run(go_on())
    assert edge.key("signatures_total", "signer:vault") == 2 * each + 2
    assert edge.key("failures_total", "signer:vault") == 0


def test_all_handshakes_complete_with_a_signer_that_takes_200_ms(edge, faulty_signer, run_edge):
    faulty_signer.delay = 0.2
    client = run_edge(FROM_SIGNER, signers={"vault": [faulty_signer.address]})
    with ThreadPoolExecutor(50) as threads:
        assert set(threads.map(lambda _: client.fetch(), range(50))) == {b"elsewhere"}

    async def over_quic() -> list[bytes]:
        return await asyncio.gather(*(client.fetch_h3() for _ in range(50)))

    assert set(asyncio.run(over_quic())) == {b"elsewhere"}
    assert edge.key("signatures_total", "signer:vault") == 100


def test_handshakes_beyond_the_limits_are_refused_and_others_go_on(edge, faulty_signer, run_edge):
    limits = "parked_handshakes = 4\nsigning_threads = 2"
    client = run_edge(FROM_SIGNER, signers={"vault": [faulty_signer.address]}, limits=limits)
    assert client.fetch() == b"elsewhere"
    faulty_signer.fault = "hold"
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(client.fetch) for _ in range(4)]
        parked = 'pronghorn_handshakes_parked{transport="tcp"}'
        eventually("four wait", lambda: edge.metrics()[parked] == 4)
        assert not client.is_served()
        assert edge.metrics()["pronghorn_parked_handshakes_refused_total"] == 1
        assert client.fetch("127.0.0.1") == b"here"
        faulty_signer.release()
        assert [one.result() for one in waiting] == [b"elsewhere"] * 4


def test_client_that_leaves_while_its_handshake_waits_frees_its_slot(edge, faulty_signer, run_edge):
    client = run_edge(FROM_SIGNER, signers={"vault": [faulty_signer.address]})
    assert client.fetch() == b"elsewhere"
    faulty_signer.fault = "hold"
    left = [pending(client) for _ in range(5)]
    eventually("they wait", lambda: len(faulty_signer.held) == 5)
    for one in left:
        one.kill()
        one.communicate()
    faulty_signer.release()
    parked = 'pronghorn_handshakes_parked{transport="tcp"}'
    eventually("none is parked", lambda: edge.metrics()[parked] == 0)
    assert client.fetch() == b"elsewhere"


# A signer with a fault, and a key in a file.


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("lie", "the signature is wrong"),
        ("mute", "no signature within 500ms"),
        ("slow", "no signature within 500ms"),
        ("refuse", "the signer answered"),
        ("close", "the signer closed the connection|connection"),
    ],
)
def test_next_key_is_used_while_a_signer_has_a_fault(
    with_file, faulty_signer, run_edge, fault, reason
):
    client = run_edge(WITH_A_FILE, signers={"vault": [faulty_signer.address]}, timeout=SOON)
    eventually("the signer signs", lambda: is_signed_by_signer(with_file, client))
    if fault == "slow":
        faulty_signer.delay = 5
    else:
        faulty_signer.fault = fault
    # Each probe that fails doubles the time for which the signer is skipped.
    eventually("the file signs", lambda: is_signed_by_file(with_file, client))
    name = f"{with_file.folder}/p256.pem"
    client.server.wait_for_lines(f"^warning: key of {name}: signer:vault: .*({reason})")
    assert with_file.key("failures_total", "signer:vault") >= 1
    faulty_signer.fault, faulty_signer.delay = "", 0
    eventually("it signs again", lambda: is_signed_by_signer(with_file, client))
    client.server.wait_for_lines(f"^key of {name}: signer:vault signs again$")


def test_signature_in_flight_moves_to_the_next_key_when_the_signer_is_lost(
    with_file, faulty_signer, run_edge
):
    client = run_edge(WITH_A_FILE, signers={"vault": [faulty_signer.address]})
    eventually("the signer signs", lambda: is_signed_by_signer(with_file, client))
    faulty_signer.fault = "hold"
    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(client.fetch) for _ in range(8)]
        eventually("all wait", lambda: len(faulty_signer.held) == 8)
        faulty_signer.disconnect()
        assert [one.result() for one in waiting] == [b"elsewhere"] * 8
    assert with_file.key("signatures_total", "p256-key.pem") >= 8


def test_next_key_is_used_while_a_signer_is_stopped(with_file, signer, run_edge):
    client = run_edge(WITH_A_FILE, signers={"vault": [signer.address]}, timeout=SOON)
    eventually("the signer signs", lambda: is_signed_by_signer(with_file, client))
    os.kill(signer.pid, signal.SIGSTOP)
    try:
        eventually("the file signs", lambda: is_signed_by_file(with_file, client))
    finally:
        os.kill(signer.pid, signal.SIGCONT)
    eventually("it signs again", lambda: is_signed_by_signer(with_file, client))
    client.server.wait_for_lines("^warning: key of .*signer:vault: no signature within 500ms$")
    client.server.wait_for_lines("signer:vault signs again$")


def test_next_key_is_used_while_a_signer_is_away(with_file, signer, run_edge):
    client = run_edge(WITH_A_FILE, signers={"vault": [signer.address]})
    eventually("the signer signs", lambda: is_signed_by_signer(with_file, client))
    signer.process.kill()
    client.server.wait_for_lines(f"^warning: signer vault: {signer.address}: ")
    eventually("the file signs", lambda: is_signed_by_file(with_file, client))
    assert asyncio.run(client.fetch_h3()) == b"elsewhere"
    signer.start()
    eventually("it signs again", lambda: is_signed_by_signer(with_file, client))
    client.server.wait_for_lines(f"^signer vault: connected to {signer.address}$", 2)
    client.server.wait_for_lines("signer:vault signs again$")


# Several addresses.


def test_second_address_signs_when_the_first_is_killed(edge, run_edge):
    signers = [RunningSigner(edge) for _ in range(2)]
    try:
        client = run_edge(FROM_SIGNER, signers={"vault": [one.address for one in signers]})
        for one in signers:
            client.server.wait_for_lines(f"^signer vault: connected to {one.address}$")
        with ThreadPoolExecutor(8) as threads:
            fetched = [threads.submit(client.fetch) for _ in range(40)]
            signers[0].process.kill()
            assert {one.result() for one in fetched} == {b"elsewhere"}
        assert asyncio.run(client.fetch_h3()) == b"elsewhere"
        assert edge.key("signatures_total", "signer:vault") == 41
        assert edge.key("failures_total", "signer:vault") == 0
    finally:
        for one in signers:
            one.process.stop()


def test_second_address_signs_when_the_first_hangs(edge, run_edge):
    signers = [RunningSigner(edge) for _ in range(2)]
    try:
        # The second address is tried after half of the time.
        addresses = [one.address for one in signers]
        client = run_edge(FROM_SIGNER, signers={"vault": addresses}, timeout="4s")
        for one in signers:
            client.server.wait_for_lines(f"^signer vault: connected to {one.address}$")
        os.kill(signers[0].pid, signal.SIGSTOP)
        assert {client.fetch() for _ in range(4)} == {b"elsewhere"}
    finally:
        for one in signers:
            one.process.stop()


# No key at all.


@pytest.fixture(params=["killed", "stopped", "lying"])
def unsigned(request, edge, signer, faulty_signer, run_edge):
    """Runs a gateway that loses its only signer, and calls a function then."""
    is_lying = request.param == "lying"
    address = faulty_signer.address if is_lying else signer.address
    client = run_edge(FROM_SIGNER, signers={"vault": [address]}, timeout="2s")

    def lose() -> Client:
        match request.param:
            case "killed":
                signer.process.kill()
            case "stopped":
                os.kill(signer.pid, signal.SIGSTOP)
            case _:
                faulty_signer.fault = "lie"
        return client

    client.lose = lose
    return client


def test_clients_get_the_alert_internal_error_when_no_key_signs(edge, unsigned):
    client = unsigned
    eventually("the signer signs", client.is_served)

    async def over_quic() -> None:
        async with client.h3() as h3:
            h3.authority = f"localhost:{client.port}"
            assert (await h3.fetch("/")).text() == "elsewhere"
            with client.h2() as h2:
                assert h2.fetch("/").text() == "elsewhere"
                client.lose()
                for version in ("-tls1_2", "-tls1_3"):
                    output = client.openssl(version)
                    assert f"SSL alert number {INTERNAL_ERROR}" in output, output
                assert await client.close_code() == CRYPTO_ERROR + INTERNAL_ERROR
                # Nothing else suffers.
                assert h2.fetch("/").text() == "elsewhere"
                assert (await h3.fetch("/")).text() == "elsewhere"
                assert client.fetch("127.0.0.1") == await client.fetch_h3("127.0.0.1") == b"here"

    asyncio.run(over_quic())
    with GoClient("3", edge.ca) as go, pytest.raises(RequestFailedError) as failed:
        go.fetch(f"https://localhost:{client.port}/")
    # No client learns where the key is.
    assert str(failed.value) == "CRYPTO_ERROR 0x150 (remote): other error: no signature"
    assert edge.key("failures_total", "signer:vault") >= 4
    assert edge.metrics()['pronghorn_handshakes_parked{transport="quic"}'] == 0
    assert edge.metrics()['pronghorn_handshakes_parked{transport="tcp"}'] == 0
