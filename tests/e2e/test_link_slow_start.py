"""Does the kernel's TCP leave slow start early because of the jitter of a profile? 20 seeds with it, and 20 without."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from harness.server import pronghorn

LTE = Path(__file__).parents[2] / "profiles" / "lte.toml"
SEEDS = range(1, 21)
# What 12 Mbit/s and 70 ms hold: to leave slow start at fewer packets costs time, at more it does not.
FULL_PACKETS = 70

pytestmark = [pytest.mark.serial, pytest.mark.long]


def leaves_early(identity, folder: Path, seed: int, *options: str) -> bool | None:
    """Whether a download of 1 MB over TCP left slow start before the link was full; None if the link was late."""
    report = folder / "report.json"
    serve = [pronghorn(), "serve", folder / "site", "--listen", "10.77.0.2:443"]
    far = shlex.join(str(part) for part in [*serve, "--cert", identity.cert, "--key", identity.key])
    run = ["--seed", seed, "--tcp-congestion", "cubic", "--report", report, "--far", far, "--far-ready", "443"]
    get = [pronghorn(), "get", "--http", "2", "--no-verify", "-o", "/dev/null", "https://10.77.0.2/page"]
    call = [str(part) for part in [pronghorn(), "link", LTE, *options, *run, "--", *get]]
    subprocess.run(call, check=True, capture_output=True, timeout=60)
    found = json.loads(report.read_text())
    if found["hystart"] is None:
        pytest.skip("this kernel does not count it")
    hystart = found["hystart"]
    early = hystart["delay_detected"] > 0 and hystart["delay_cwnd_packets"] < FULL_PACKETS
    return early if found["kept_deadlines"] else None


def test_jitter_ends_slow_start_no_more_often_than_a_steady_link(identity, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "page").write_bytes(bytes(1_000_000))
    pairs = [
        (leaves_early(identity, tmp_path, seed), leaves_early(identity, tmp_path, seed, "--no-jitter"))
        for seed in SEEDS
    ]
    in_time = [pair for pair in pairs if None not in pair]
    if len(in_time) < len(SEEDS) / 2:
        pytest.skip("the machine was too busy for the link to keep its deadlines")
    with_jitter, without = (sum(early) for early in zip(*in_time, strict=True))
    assert with_jitter <= without, in_time
