"""Our CUBIC over QUIC against the kernel's over TCP, on one bottleneck."""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
from pathlib import Path

import pytest

from harness.server import pronghorn

SECONDS = 15
# The second transfer starts after the first has filled the queue.
LATER_SECONDS = 3
ROUNDS = 3
PROFILE = """
name = "shared"
[up]
rate_mbit_per_second = 20
delay_ms = 20
queue_ms = 100
[down]
rate_mbit_per_second = 20
delay_ms = 20
queue_ms = {queue}
"""

pytestmark = [pytest.mark.serial, pytest.mark.long, pytest.mark.timeout(300)]


def share(identity, folder: Path, first: str) -> float | None:
    """Returns the HTTP/3 transfer's share of the throughput of both; None if the link was late."""
    report = folder / "report.json"
    serve = [
        pronghorn(),
        "serve",
        folder / "site",
        "--listen",
        "10.77.0.2:443",
        "--quiet",
        "--congestion",
        "cubic",
    ]
    far = shlex.join(str(part) for part in [*serve, "--cert", identity.cert, "--key", identity.key])
    options = ["--tcp-congestion", "cubic", "--report", report, "--far", far, "--far-ready", "443"]
    get = f"timeout {{}} {pronghorn()} get --http {{}} --no-verify -o /dev/null https://10.77.0.2/large"
    other = "2" if first == "3" else "3"
    begun = get.format(SECONDS, first)
    both = (
        f"{begun} & sleep {LATER_SECONDS}; {get.format(SECONDS - LATER_SECONDS, other)}; wait; true"
    )
    call = [
        str(part)
        for part in [pronghorn(), "link", folder / "profile.toml", *options, "--", "sh", "-c", both]
    ]
    subprocess.run(call, check=True, capture_output=True, timeout=90)
    found = json.loads(report.read_text())
    carried = {"tcp": 0.0, "udp": 0.0, "icmp": 0.0}
    for flow in found["flows"]:
        carried[flow["protocol"]] += flow["down"]["bytes"]
    # The time in which the first had the link alone does not count.
    alone = LATER_SECONDS * 20e6 / 8
    carried["udp" if first == "3" else "tcp"] -= alone
    return carried["udp"] / (carried["udp"] + carried["tcp"]) if found["kept_deadlines"] else None


@pytest.mark.parametrize("queue", [40, 100])
def test_transfer_over_quic_shares_a_link_with_one_over_tcp(identity, tmp_path, queue):
    """The later transfer gets less for a while, even of two equal ones, so each is the later one in
    half of the runs.
    """
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "large").write_bytes(bytes(100_000_000))
    (tmp_path / "profile.toml").write_text(PROFILE.format(queue=queue))
    shares = {
        first: [share(identity, tmp_path, first) for _ in range(ROUNDS)] for first in ("2", "3")
    }
    kept = {first: [found for found in of if found is not None] for first, of in shares.items()}
    if not all(kept.values()):
        pytest.skip("the machine was too busy for the link")
    mean = statistics.mean(statistics.median(of) for of in kept.values())
    assert 0.4 <= mean <= 0.6, shares
