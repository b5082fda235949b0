"""Latency of established connections while 300 handshakes a second wait for a slow signer, in pairs
with handshakes whose key is in the process.
"""

from __future__ import annotations

import json
import statistics
import subprocess

import pytest

from harness.keys import FROM_SIGNER, Client
from harness.server import pronghorn

HANDSHAKES_PER_SECOND = 300
SIGNER_SECONDS = 0.2
PAIRS = 6
SECONDS = 6
P99_MILLISECONDS = 1.0
"""How much later a hundredth of the responses may be than with a key in the process."""
TURN_SECONDS = 0.002
LONG_TURNS = 0.001
"""How much larger the share of turns over `TURN_SECONDS` may be."""


def load(client: Client, host: str, *flags: str) -> subprocess.Popen:
    command = [pronghorn(), "load", "--cacert", client.edge.ca, "--json", "-d", str(SECONDS)]
    command += ["--connect-to", f"127.0.0.1:{client.port}", *flags]
    return subprocess.Popen(
        [str(part) for part in [*command, f"https://{host}:{client.port}/"]],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def report(running: subprocess.Popen) -> dict:
    output, _ = running.communicate(timeout=10 * SECONDS)
    found = json.loads(output)
    requests = found["requests"]
    assert requests["errors"]["total"] == requests["given_up"] == 0, requests
    assert requests["status"]["2xx"] == requests["begun"], requests
    return found


def turns(client: Client) -> tuple[float, float]:
    """Returns the number of turns, and of those that took longer than `TURN_SECONDS`."""
    values = client.edge.metrics()
    count = values["pronghorn_worker_turn_seconds_count"]
    return count, count - values[f'pronghorn_worker_turn_seconds_bucket{{le="{TURN_SECONDS}"}}']


def measure(client: Client, http: str, host: str) -> tuple[float, float]:
    """Opens connections to the host, and returns the 99th percentile of requests on others, in
    milliseconds, and the share of long turns.
    """
    count, long = turns(client)
    rate = str(HANDSHAKES_PER_SECOND)
    new = load(client, host, "--http", http, "--connections-per-second", rate, "-c", "256")
    established = load(client, "127.0.0.1", "--http", http, "-c", "10", "--rate", "500")
    latency = report(established)["latency_us"]["response"]["p99"] / 1000
    assert report(new)["requests"]["begun"] >= 0.9 * HANDSHAKES_PER_SECOND * SECONDS
    count_after, long_after = turns(client)
    return latency, (long_after - long) / (count_after - count)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("http", ["2", "3"])
def test_slow_signer_does_not_slow_established_connections(edge, faulty_signer, run_edge, http):
    faulty_signer.delay = SIGNER_SECONDS
    # 300 handshakes a second that take 200 ms need 60 threads.
    client = run_edge(FROM_SIGNER, signers={"vault": [faulty_signer.address]})
    later, longer = [], []
    for number in range(PAIRS):
        found = {}
        order = ("127.0.0.1", "localhost") if number % 2 else ("localhost", "127.0.0.1")
        for host in order:
            found[host] = measure(client, http, host)
        print(f"key in the process: {found['127.0.0.1']}, on the signer: {found['localhost']}")
        later.append(found["localhost"][0] - found["127.0.0.1"][0])
        longer.append(found["localhost"][1] - found["127.0.0.1"][1])
    assert statistics.median(later) <= P99_MILLISECONDS, later
    assert statistics.median(longer) <= LONG_TURNS, longer
    signatures = edge.key("signatures_total", "signer:vault")
    assert signatures >= 0.9 * PAIRS * HANDSHAKES_PER_SECOND * SECONDS
    assert edge.key("failures_total", "signer:vault") == 0
