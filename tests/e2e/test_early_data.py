"""Resumption and early data (0-RTT): replay of a recorded first flight, and independent clients."""

from __future__ import annotations

import contextlib
import re
import subprocess

import pytest

from harness.clients.aioquic_h3 import ask_with_aioquic
from harness.clients.openssl import openssl, request
from harness.first_flight import FirstFlight, capture, received_until_silence
from harness.server import Server, echo_command, pronghorn, serve_command
from harness.waiting import DEADLINE_SECONDS, eventually

REPLAYS = 3
EARLY_TRIES = 10


@pytest.fixture(params=["1.1", "2", "3"])
def version(request) -> str:
    return request.param


@pytest.fixture
def get(ca) -> list:
    return [pronghorn(), "get", "--cacert", ca]


def requests(server: Server, path: str) -> int:
    """Counts the responses for this path in the access log."""
    return sum(f" GET {path} " in line for line in server.lines)


def counters(server: Server) -> dict[str, int]:
    server.terminate()
    server.wait()
    return server.counters()


def replay(flight: FirstFlight, port: int, stack: contextlib.ExitStack) -> None:
    """Sends a flight until the server makes a new connection of it, so that it has processed the
    ticket.

    Over QUIC this may take several tries: datagrams for a connection that still waits for its
    client belong to that connection.
    """

    def answered() -> bool:
        sender = stack.enter_context(flight.send(port))
        sender.settimeout(0.5 if flight.version == "3" else DEADLINE_SECONDS)
        try:
            return bool(sender.recv(65535))
        except TimeoutError:
            return False

    eventually("an answer to the replayed flight", answered)


@pytest.mark.parametrize("workers", ["1", "4"])
def test_recorded_first_flight_is_answered_once(start_serve, get, version, workers):
    server = start_serve("--stats", "--workers", workers, "--grace", "0.5", "--idle-timeout", "1")
    flight = capture(server.port, get, version, "/small.txt")
    assert requests(server, "/small.txt") == 1
    with contextlib.ExitStack() as stack:
        # Another socket delivers it: nothing in a first flight proves its sender.
        stack.enter_context(flight.send(server.port))
        eventually("the answer to the early request", lambda: requests(server, "/small.txt") == 2)
        for _ in range(REPLAYS):
            replay(flight, server.port, stack)
    seen = counters(server)
    assert requests(server, "/small.txt") == 2
    assert (seen["early_data_accepted"], seen["requests_early"]) == (1, 1)
    # Over QUIC a connection that answers late is not seen by its replay, which tries again.
    assert seen["early_data_refused_no_session"] >= REPLAYS


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_client_that_never_completes_its_handshake_is_closed(start_serve, get, version):
    """Its early request has been answered; it must not count as a client with a completed
    handshake.
    """
    server = start_serve("--stats", "--grace", "0.5", "--idle-timeout", "60")
    flight = capture(server.port, get, version, "/small.txt")
    with flight.send(server.port) as sender:
        while sender.recv(65535):
            pass
    seen = counters(server)
    assert (seen["requests_early"], seen["tcp_timed_out"]) == (1, 1)


def test_server_without_early_data_still_resumes(start_serve, get, version):
    server = start_serve("--stats", "--early-data", "off", "--grace", "0.5")
    command = [
        *get,
        "--http",
        version,
        "--early-data",
        "--repeat",
        "3",
        "-v",
        f"{server.origin}/small.txt",
    ]
    shown = subprocess.run(
        [str(part) for part in command], capture_output=True, timeout=60, check=True
    ).stderr.decode()
    assert re.findall(r"^\* TLS: (.+?), X25519", shown, re.MULTILINE) == [
        "full handshake",
        "resumed",
        "resumed",
    ]
    seen = counters(server)
    assert (
        seen["early_data_accepted"],
        seen["requests_early"],
        seen["tcp_resumed"] + seen["quic_resumed"],
    ) == (
        0,
        0,
        2,
    )


@pytest.mark.parametrize(
    ("limit", "counter"),
    [("sessions=0", "sessions_evicted"), ("session_bytes=0", "sessions_evicted_for_bytes")],
    ids=["sessions", "bytes"],
)
def test_server_without_session_storage_resumes_none(start_serve, get, version, limit, counter):
    server = start_serve("--stats", "--limit", limit, "--grace", "0.5")
    command = [
        *get,
        "--http",
        version,
        "--early-data",
        "--repeat",
        "3",
        "-v",
        f"{server.origin}/small.txt",
    ]
    shown = subprocess.run(
        [str(part) for part in command], capture_output=True, timeout=60, check=True
    ).stderr.decode()
    assert re.findall(r"^\* TLS: (.+?), X25519", shown, re.MULTILINE) == ["full handshake"] * 3
    seen = counters(server)
    assert (seen["tcp_resumed"] + seen["quic_resumed"], seen["sessions_held"]) == (0, 0)
    assert seen[counter] > 0


def test_restarted_server_rejects_early_data_and_answers_after_the_handshake(
    start, start_serve, get, identity, site, version
):
    server = start_serve("--stats")
    flight = capture(server.port, get, version, "/small.txt")
    server.kill()
    again = start(
        serve_command(
            site.root, identity, "--stats", "--grace", "0.5", listen=[f"127.0.0.1:{server.port}"]
        )
    )
    with flight.send(again.port) as sender:
        assert sender.recv(65535)
    seen = counters(again)
    assert requests(again, "/small.txt") == 0
    assert (seen["early_data_accepted"], seen["early_data_refused_no_session"]) == (0, 1)


def test_early_data_from_a_forged_address_is_not_amplified(start_serve, get):
    """CVE-2024-49214 and similar: a first flight requests much from an address that never sends
    again.
    """
    server = start_serve("--stats", "--grace", "0.5")
    flight = capture(server.port, get, "3", "/big.bin")
    # The token in it proves the address that it was issued to, and no other.
    with flight.send(server.port, source="127.0.0.2") as sender:
        received = received_until_silence(sender)
    seen = counters(server)
    assert seen["requests_early"] == 1
    # RFC 9000 section 8.1.
    assert flight.size < received <= 3 * flight.size


# Independent clients.


async def test_aioquic_gets_an_answer_to_early_data(start_serve, ca, site):
    server = start_serve("--stats")
    tickets = []
    _, resumed, _ = await ask_with_aioquic(
        server.origin, ca, tickets, early=False, path="/small.txt"
    )
    assert not resumed
    assert len(tickets) == 2
    for _ in range(3):
        answer, resumed, accepted = await ask_with_aioquic(
            server.origin, ca, tickets, early=True, path="/small.txt"
        )
        assert (answer.status, answer.body) == (200, site.read("small.txt"))
        assert resumed
        assert accepted
    seen = counters(server)
    assert (seen["early_data_accepted"], seen["requests_early"], seen["quic_resumed"]) == (3, 3, 3)


async def test_unsafe_request_of_aioquic_is_too_early(start, identity, ca):
    server = start(echo_command(identity))
    tickets = []
    asked = {"path": "/upload", "method": "POST", "body": b"pay"}
    first, _, _ = await ask_with_aioquic(server.origin, ca, tickets, early=False, **asked)
    assert first.status == 200
    answer, resumed, accepted = await ask_with_aioquic(
        server.origin, ca, tickets, early=True, **asked
    )
    assert (answer.status, resumed, accepted) == (425, True, True)
    # After the handshake the same client may send it.
    answer, _, _ = await ask_with_aioquic(server.origin, ca, tickets, early=False, **asked)
    assert answer.status == 200


async def test_ticket_of_one_host_is_rejected_for_another_over_quic(start_serve, ca):
    """CVE-2025-23419 and similar."""
    server = start_serve("--stats")
    tickets = []
    await ask_with_aioquic(
        server.origin, ca, tickets, early=False, server_name="localhost", path="/small.txt"
    )
    for ticket in tickets:
        ticket.server_name = "127.0.0.1"
    asked = {"early": True, "server_name": None, "path": "/small.txt"}
    _, resumed, accepted = await ask_with_aioquic(server.origin, ca, tickets, **asked)
    assert (resumed, accepted) == (False, False)
    assert counters(server)["requests_early"] == 0


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("POST", 425)])
def test_openssl_sends_early_data_over_tcp(start, identity, tmp_path, method, status):
    server = start(echo_command(identity))
    path = "/headers" if method == "GET" else "/upload"
    (tmp_path / "request").write_bytes(request(method, path))
    said = openssl(server.port, "-sess_out", tmp_path / "session", request=request(method, path))
    assert "HTTP/1.1 200" in said
    assert "New, TLSv1.3" in said
    for _ in range(EARLY_TRIES):
        said = openssl(
            server.port, "-sess_in", tmp_path / "session", "-early_data", tmp_path / "request"
        )
        assert "Reused, TLSv1.3" in said
        assert "Early data was accepted" in said
        if f"HTTP/1.1 {status}" in said:
            break
        # A busy server may read it together with the end of the handshake: then it is not early.
        assert "HTTP/1.1 200" in said
        openssl(server.port, "-sess_out", tmp_path / "session", request=request(method, path))
    assert f"HTTP/1.1 {status}" in said
    # The same session file again: a replay by the client itself.
    said = openssl(
        server.port,
        "-sess_in",
        tmp_path / "session",
        "-early_data",
        tmp_path / "request",
        request=request(method, path),
    )
    assert "New, TLSv1.3" in said
    assert "Early data was rejected" in said
    assert "HTTP/1.1 200" in said


def test_ticket_of_one_host_is_rejected_for_another_over_tcp(start, identity, tmp_path):
    server = start(echo_command(identity))
    ask = request("GET", "/headers")
    (tmp_path / "request").write_bytes(ask)
    for number, (name, said) in enumerate([("other.test", "New"), ("localhost", "Reused")]):
        session = tmp_path / f"session{number}"
        openssl(server.port, "-sess_out", session, request=ask)
        assert f"{said}, TLSv1.3" in openssl(
            server.port, "-sess_in", session, request=ask, name=name
        )
