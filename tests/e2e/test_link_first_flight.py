"""What comes of a response within a round trip of its request, over HTTP/2 and HTTP/3, by clients that others wrote."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.server import pronghorn

ROUND_TRIP_SECONDS = 0.4
PROFILE = """
name = "far"
[up]
rate_mbit_per_second = 300
delay_ms = 200
queue_ms = 100
[down]
rate_mbit_per_second = 300
delay_ms = 200
queue_ms = 100
"""
SIZES = [8_000, 11_500, 13_000, 16_000, 30_000, 60_000]
# A busy machine makes all of it late, and never soon.
ROUNDS = 3
# What takes one round trip more comes after two.
SOON_SECONDS = 1.5 * ROUND_TRIP_SECONDS


@pytest.fixture(scope="module")
def measure(identity, tmp_path_factory):
    """Arrivals by protocol and path, one dictionary for each round, as they are measured."""
    folder = tmp_path_factory.mktemp("first-flight")
    (folder / "site").mkdir()
    for size in SIZES:
        (folder / "site" / str(size)).write_bytes(bytes(size))
    (folder / "profile.toml").write_text(PROFILE)
    # As many packets as the kernel's TCP has.
    serve = [pronghorn(), "serve", folder / "site", "--listen", "10.77.0.2:443", "--initial-window", "10", "--quiet"]
    far = shlex.join(str(part) for part in [*serve, "--cert", identity.cert, "--key", identity.key])
    client = [sys.executable, "-m", "harness.first_bytes", "10.77.0.2", "443", *(f"/{size}" for size in SIZES)]
    link = [
        pronghorn(),
        "link",
        folder / "profile.toml",
        "--tcp-congestion",
        "cubic",
        "--far",
        far,
        "--far-ready",
        "443",
    ]

    def one_round() -> dict:
        run = [str(part) for part in [*link, "--", *client]]
        done = subprocess.run(run, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[1])
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    kept = []

    def found(good) -> bool:
        """Whether one of the rounds is good: those that were measured before, and then new ones."""
        while not any(map(good, kept)):
            if len(kept) == ROUNDS:
                return False
            kept.append(one_round())
        return True

    return found


def in_a_round_trip(arrivals: dict) -> int:
    """Bytes of the response that had come before a second round trip was over."""
    return max((count for at, count in arrivals["bytes_by_time"] if at < SOON_SECONDS), default=0)


@pytest.mark.parametrize("version", ["2", "3"])
def test_short_responses_take_a_round_trip(measure, version):
    for size in (8_000, 11_500):
        assert measure(lambda found, size=size: found[version][f"/{size}"]["done"] < SOON_SECONDS), size


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("size", SIZES)
def test_first_byte_takes_a_round_trip(measure, version, size):
    """A record of 16 KiB cannot be read before its last byte has come, a round trip later."""

    def is_soon(found: dict) -> bool:
        # More than the server's SETTINGS.
        came = [at for at, count in found[version][f"/{size}"]["bytes_by_time"] if count > 1_000]
        return came[0] < SOON_SECONDS

    assert measure(is_soon)


def test_first_flights_of_both_protocols_hold_as_much(measure):
    def are_full(found: dict) -> bool:
        return all(in_a_round_trip(found[version]["/60000"]) >= 11_500 for version in ("2", "3"))

    assert measure(are_full)
