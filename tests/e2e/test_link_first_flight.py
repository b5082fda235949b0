"""Bytes of a response within one round trip of its request, over HTTP/2 and HTTP/3, by independent
clients.
"""

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
# A busy machine only delays arrivals: one good round is enough.
ROUNDS = 10
# Responses that take one more round trip arrive after two.
SOON_SECONDS = 1.5 * ROUND_TRIP_SECONDS


@pytest.fixture(scope="module")
def measure(identity, tmp_path_factory):
    """Measures arrivals by protocol and path, one dictionary for each round."""
    folder = tmp_path_factory.mktemp("first-flight")
    (folder / "site").mkdir()
    for size in SIZES:
        (folder / "site" / str(size)).write_bytes(bytes(size))
    (folder / "profile.toml").write_text(PROFILE)
    # The kernel's initial window for TCP, in packets.
    serve = [
        pronghorn(),
        "serve",
        folder / "site",
        "--listen",
        "10.77.0.2:443",
        "--initial-window",
        "10",
        "--quiet",
    ]
    far = shlex.join(str(part) for part in [*serve, "--cert", identity.cert, "--key", identity.key])
    client = [
        sys.executable,
        "-m",
        "harness.first_bytes",
        "10.77.0.2",
        "443",
        *(f"/{size}" for size in SIZES),
    ]
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
        done = subprocess.run(
            run, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[1]
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    kept = []

    def found(good) -> bool:
        """Returns whether a round is good: first those already measured, then new ones."""
        while not any(map(good, kept)):
            if len(kept) == ROUNDS:
                return False
            kept.append(one_round())
        return True

    return found


def in_a_round_trip(arrivals: dict) -> int:
    """Returns the bytes of the response that arrived before the second round trip ended."""
    return max((count for at, count in arrivals["bytes_by_time"] if at < SOON_SECONDS), default=0)


@pytest.mark.parametrize("version", ["2", "3"])
def test_short_response_takes_one_round_trip(measure, version):
    for size in (8_000, 11_500):
        assert measure(
            lambda found, size=size: found[version][f"/{size}"]["done"] < SOON_SECONDS
        ), size


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("size", SIZES)
def test_first_byte_takes_one_round_trip(measure, version, size):
    """A TLS record of 16 KiB could only be read after its last byte, a round trip later."""

    def is_soon(found: dict) -> bool:
        # More than the server's SETTINGS.
        came = [at for at, count in found[version][f"/{size}"]["bytes_by_time"] if count > 1_000]
        return came[0] < SOON_SECONDS

    assert measure(is_soon)


def test_first_flights_of_both_protocols_have_equal_size(measure):
    def are_full(found: dict) -> bool:
        return all(in_a_round_trip(found[version]["/60000"]) >= 11_500 for version in ("2", "3"))

    assert measure(are_full)
