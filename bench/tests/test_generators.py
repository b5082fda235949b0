"""Command lines of the generators, and parsing of their output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.generators import GeneratorError, h2load_command, load_command, parse_h2load, parse_load
from bench.tables import Workload

H2LOAD = """
starting benchmark...
finished in 1.52s, 13157.89 req/s, 1.21MB/s
requests: 20000 total, 20000 started, 20000 done, 20000 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 20000 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 1.84MB (1930000) total, 117.19KB (120000) headers (space savings 96.10%), 253.91KB (260000) data
UDP datagram: 721 sent, 1803 received
                 min         max         median     p95        p99        mean         sd        +/- sd
request     :     1.20ms     60.10ms      12.50ms     40.00ms     1.05s     14.00ms     9.00ms    80.00%
connect     :     3.00ms      9.00ms       6.00ms      8.00ms     9.00ms      6.00ms     1.00ms    70.00%
"""


def workload(**more) -> Workload:
    return Workload(
        **{
            "name": "w",
            "kind": "requests",
            "protocol": "h3",
            "file": "13.txt",
            "connections": 10,
            **more,
        }
    )


def test_h2load_output_is_parsed():
    load = parse_h2load(H2LOAD)
    assert (load.requests, load.failed, load.body_bytes) == (20000, 0, 260000)
    assert (load.seconds, load.requests_per_second) == (1.52, 13157.89)
    assert (load.p50_ms, load.p99_ms) == (12.5, 1050.0)


def test_h2load_errors_count_as_failed():
    text = H2LOAD.replace("20000 succeeded, 0 failed", "19990 succeeded, 10 failed").replace(
        "20000 2xx", "19990 2xx"
    )
    assert parse_h2load(text).failed == 10


def test_h2load_responses_with_another_status_count_as_failed():
    assert (
        parse_h2load(H2LOAD.replace("20000 2xx, 0 3xx, 0 4xx", "0 2xx, 0 3xx, 20000 4xx")).failed
        == 20000
    )


def test_unknown_h2load_output_is_an_error():
    with pytest.raises(GeneratorError, match="unknown option"):
        parse_h2load("h2load: unknown option --h3")


def test_load_report_is_parsed_and_other_statuses_count_as_failed():
    latency = {"response": {"count": 5, "p50": 1500.0, "p99": 2500.0}}
    report = {
        "measured_seconds": 2.0,
        "requests": {
            "status": {"1xx": 0, "2xx": 5, "3xx": 0, "4xx": 3, "5xx": 0},
            "errors": {"total": 1},
            "given_up": 2,
            "per_second": 4.0,
        },
        "body": {"received_bytes": 65},
        "latency_us": latency,
        "connections": {"opened": 2, "resumed": 1},
        "websockets": {"opened": 9, "failed": 0, "ended": 2},
        "warnings": [{"kind": "errors", "message": "1 request failed"}],
    }
    load = parse_load(json.dumps(report))
    assert (load.requests, load.failed, load.body_bytes, load.resumed) == (5, 6, 65, 1)
    assert (load.p50_ms, load.p99_ms) == (1.5, 2.5)
    assert (load.warnings, load.websockets) == (("errors",), 7)


def test_both_generators_send_the_same_load():
    small = workload(streams=100, requests=5000)
    ours = load_command(Path("pronghorn"), small, 4433, 5000)
    theirs = h2load_command(Path("h2load"), small, 4433, 5000)
    for command in (ours, theirs):
        assert command[-1] == "https://localhost:4433/13.txt"
        for flag, value in (("-c", "10"), ("-m", "100"), ("-n", "5000")):
            assert command[command.index(flag) + 1] == value


def test_clear_text_workload_uses_an_http_url():
    clear = workload(protocol="h1-clear", streams=10, requests=100)
    ours = load_command(Path("pronghorn"), clear, 4433)
    theirs = h2load_command(Path("h2load"), clear, 4433)
    assert ours[-1] == theirs[-1] == "http://localhost:4433/13.txt"
    assert "--h1" in theirs
    assert ours[ours.index("--http") + 1] == "1.1"


def test_rate_applies_to_the_measured_run_and_not_to_the_warm_up():
    light = workload(rate=500.0, seconds=4.0, generators=("load",))
    assert "--rate" in load_command(Path("pronghorn"), light, 1, None)
    assert "--rate" not in load_command(Path("pronghorn"), light, 1, 200)


def test_new_connection_per_request_is_passed_to_the_generator():
    command = load_command(
        Path("pronghorn"), workload(kind="memory", reconnect=True, requests=9), 1, 9
    )
    assert "--reconnect" in command
    assert "-m" not in command


def test_resumption_workload_opens_new_connections():
    command = load_command(
        Path("pronghorn"), workload(kind="handshakes", resume=True, requests=9), 1, 9
    )
    assert "--reconnect" in command
    assert "--resume" in command
    assert "-m" not in command


def test_h2load_opens_no_more_connections_at_once_than_configured():
    command = h2load_command(Path("h2load"), workload(kind="handshakes", requests=20), 1, 20)
    assert command[command.index("-r") + 1] == "20"
