"""Compares the figures of `pronghorn load` with those of counting servers: requests, bytes,
connections, rates.
"""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from harness.counting_server import ANSWER, CountingServer
from harness.server import pronghorn

NAME = {"1.1": "HTTP/1.1", "2": "HTTP/2", "3": "HTTP/3"}

PERCENTILES = ["min", "p50", "p75", "p90", "p95", "p99", "p99_9", "p99_99", "max"]

PLANNED_SECONDS = 60
"""Longer than any of these runs."""


@pytest.fixture(params=["1.1", "2", "3"])
def version(request) -> str:
    return request.param


@dataclass
class Run:
    report: dict
    took_seconds: float
    """From before the start of the program until after its end."""


@pytest.fixture
def load(ca):
    def load(*arguments, code: int = 0) -> Run:
        command = [
            str(part) for part in [pronghorn(), "load", "--json", "--cacert", ca, *arguments]
        ]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, timeout=100)
        took = time.monotonic() - began
        assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
        return Run(json.loads(done.stdout), took)

    return load


def streams(version: str) -> tuple[str, ...]:
    return () if version == "1.1" else ("-m", "4")


@pytest.mark.parametrize(
    "how",
    [
        [],
        ["--threads", "2"],
        ["--reconnect"],
        ["--rate", "200"],
        ["--connections-per-second", "100"],
    ],
    ids=lambda how: how[0] if how else "kept",
)
def test_rate_of_a_run_that_ends_early_uses_its_last_response(load, identity, version, how):
    """The server's view is the lower bound, the program's whole run the upper bound."""
    several = streams(version) if how in ([], ["--threads", "2"]) else ()
    with CountingServer(version, identity) as server:
        run = load(
            "--http",
            version,
            "-c",
            "2",
            *several,
            *how,
            "-n",
            "60",
            "-d",
            PLANNED_SECONDS,
            f"{server.origin}/",
        )
        counts = server.counts
    measured, requests = run.report["measured_seconds"], run.report["requests"]
    assert (
        counts.requests
        == requests["begun"]
        == requests["status"]["2xx"]
        == requests["completed_in_time"]
        == 60
    )
    assert counts.last_at - counts.first_at <= measured <= run.took_seconds
    assert requests["per_second"] == pytest.approx(60 / measured)
    body = run.report["body"]
    assert body["received_bytes"] == 60 * len(ANSWER)
    assert body["received_bytes_per_second"] == pytest.approx(60 * len(ANSWER) / measured)
    assert run.report["plan"]["duration_seconds"] == PLANNED_SECONDS


def test_message_rate_of_a_run_that_ends_early_uses_its_last_message(load, handler, version):
    run = load(
        "--http", version, "--websocket", "-n", "50", "-d", PLANNED_SECONDS, f"{handler.origin}/ws"
    )
    measured, requests = run.report["measured_seconds"], run.report["requests"]
    assert requests["status"]["2xx"] == requests["completed_in_time"] == 50
    assert 0 < measured <= run.took_seconds
    assert requests["per_second"] == pytest.approx(50 / measured)


def test_rate_of_a_run_that_ends_on_time_uses_the_planned_end(load, identity, version):
    with CountingServer(version, identity) as server:
        run = load("--http", version, "-n", "100000000", "-d", "0.5", f"{server.origin}/")
        counts = server.counts
    requests = run.report["requests"]
    assert run.report["measured_seconds"] == 0.5
    assert requests["per_second"] == pytest.approx(requests["completed_in_time"] / 0.5)
    assert (
        requests["completed_in_time"]
        <= requests["begun"]
        == requests["status"]["2xx"]
        == counts.requests
    )


def test_warm_up_and_measured_requests_match_the_server(load, identity, version):
    with CountingServer(version, identity) as server:
        arguments = [
            "--http",
            version,
            "-c",
            "2",
            *streams(version),
            "--warm-up",
            "0.3",
            "-n",
            "80",
        ]
        run = load(*arguments, "--data-size", "1000", f"{server.origin}/")
        counts = server.counts
    requests, body = run.report["requests"], run.report["body"]
    assert requests["begun"] == requests["status"]["2xx"] == 80
    assert counts.requests == requests["warm_up"] + 80
    # Measured requests only.
    assert body["sent_bytes"] == 80 * 1000
    assert counts.body_bytes == counts.requests * 1000
    assert body["received_bytes"] == 80 * len(ANSWER)


def test_latencies_include_the_delay_of_the_server_in_order(load, identity, version):
    stall_us = 300_000
    with CountingServer(version, identity, stall_at=10, stall_seconds=stall_us / 1e6) as server:
        report = load("--http", version, "-n", "20", f"{server.origin}/").report
    for name in ("head", "response"):
        latency = report["latency_us"][name]
        assert latency["count"] == 20
        values = [latency[percentile] for percentile in PERCENTILES]
        assert values == sorted(values)
        assert latency["min"] <= latency["mean"] <= latency["max"]
        # Each is rounded to three digits.
        assert latency["max"] >= stall_us * 0.999
        assert latency["mean"] >= stall_us / 20 * 0.999
    assert report["latency_us"]["head"]["mean"] <= report["latency_us"]["response"]["mean"]
    assert report["measured_seconds"] >= stall_us / 1e6
    assert report["connections"] | {"protocols": report["connections"]["protocols"]} == {
        "opened": 1,
        "failed": 0,
        "resumed": 0,
        "early_data_accepted": 0,
        "early_data_refused": 0,
        "protocols": {NAME[version]: 1},
    }


def test_overdue_requests_are_limited_to_the_requested_number(load, identity):
    """A hundred a second would be due during the run, ten in total are requested."""
    with CountingServer("1.1", identity, stall_at=1, stall_seconds=4.0) as server:
        arguments = ["--http", "1.1", "--rate", "100", "-n", "10", "-d", "1", "--timeout", "1"]
        report = load(*arguments, f"{server.origin}/", code=1).report
    requests = report["requests"]
    assert requests["begun"] + requests["not_started"] <= 10


@dataclass
class Bytes:
    """Bytes on clear-text connections to a server that sends each response at once."""

    received: int = 0
    sent: int = 0
    connections: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


@pytest.fixture
def counted() -> Iterator[tuple[str, Bytes]]:
    """Yields the URL of a clear-text server that counts the bytes of its sockets."""
    counts = Bytes()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            head = b""
            while data := connection.recv(65536):
                head += data
                answers = head.count(b"\r\n\r\n")
                head = head.rpartition(b"\r\n\r\n")[2]
                with counts.lock:
                    counts.received += len(data)
                    counts.sent += answers * len(RESPONSE)
                connection.sendall(answers * RESPONSE)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # The test has ended.
            counts.connections += 1
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/", counts
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_transport_bytes_match_those_of_the_sockets(load, counted):
    url, counts = counted
    report = load("-c", "3", "--reconnect", "-n", "30", url).report
    transport = report["transport"]
    assert (transport["sent_bytes"], transport["received_bytes"]) == (counts.received, counts.sent)
    assert report["connections"]["opened"] == counts.connections == 30
    assert transport["sent_packets"] >= 30
    assert transport["received_packets"] >= 30
