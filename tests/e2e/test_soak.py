"""Long runs: the server's memory must not grow with the requests and connections served."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from harness.clients.go import GoClient
from harness.response import sha256
from harness.server import pronghorn
from harness.waiting import eventually

MIB = 1 << 20
ROUNDS = 200
AT_ONCE = 100
NEW_CONNECTIONS = 300


@pytest.mark.long
@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_memory_does_not_grow_with_requests_on_kept_connections(start_serve, site, ca, version):
    server = start_serve("--quiet")
    expected = sha256(site.read("medium.bin"))

    def half() -> int:
        for _ in range(ROUNDS // 2):
            done = client.round(f"{server.origin}/medium.bin", count=AT_ONCE)
            assert done.errors == []
            assert {response.sha256 for response in done.responses} == {expected}
        return server.resident_bytes()

    with GoClient(version, ca) as client:
        first, second = half(), half()
    assert second < first + 8 * MIB


@pytest.mark.long
@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_memory_does_not_grow_with_connections(start_serve, ca, version):
    server = start_serve("--quiet", "--idle-timeout", "5")
    with GoClient(version, ca) as client:
        assert client.fetch(f"{server.origin}/small.txt").status == 200
    quiet = server.descriptors_at_rest()

    def half() -> int:
        for _ in range(NEW_CONNECTIONS // 2):
            with GoClient(version, ca) as client:
                assert client.fetch(f"{server.origin}/small.txt").status == 200
        return server.resident_bytes()

    first, second = half(), half()
    assert second < first + 8 * MIB
    eventually("no descriptor left of them", lambda: server.open_descriptors() <= quiet)


REQUESTS_ON_ONE_CONNECTION = int(os.environ.get("PRONGHORN_SOAK_REQUESTS", "10_000_000"))
CONNECTIONS = int(os.environ.get("PRONGHORN_SOAK_CONNECTIONS", "100_000"))
SOAK_SECONDS = 1700


def load(ca, *arguments) -> dict:
    """Runs `pronghorn load` and returns its report; every request must succeed."""
    command = [pronghorn(), "load", "--cacert", ca, "--json", *arguments]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, timeout=SOAK_SECONDS
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.parametrize("version", ["2", "3"])
def test_memory_does_not_grow_with_ten_million_requests_on_one_connection(
    start_serve, ca, version, record_property
):
    server = start_serve("--quiet")
    url = f"{server.origin}/small.txt"
    one_connection = ("--http", version, "-c", "1", "-m", "64", "-d", "3600")
    load(ca, *one_connection, "-n", REQUESTS_ON_ONE_CONNECTION // 100, url)
    first = server.resident_bytes()
    load(ca, *one_connection, "-n", REQUESTS_ON_ONE_CONNECTION, url)
    second = server.resident_bytes()
    record_property("resident_bytes", [first, second])
    print(f"HTTP/{version}: {first / MIB:.1f} MiB, then {second / MIB:.1f} MiB")
    assert second < first + 8 * MIB


@pytest.mark.long
@pytest.mark.parametrize("version", ["1.1", "3"])
def test_memory_does_not_grow_with_a_hundred_thousand_connections(
    start_serve, ca, version, record_property
):
    server = start_serve("--quiet")
    each_anew = (
        "--http",
        version,
        "--reconnect",
        "-c",
        "20",
        "-d",
        "3600",
        "-n",
        CONNECTIONS,
        f"{server.origin}/small.txt",
    )
    # The first connections fill the session store up to its limit.
    load(ca, *each_anew)
    first = server.resident_bytes()
    load(ca, *each_anew)
    second = server.resident_bytes()
    record_property("resident_bytes", [first, second])
    print(f"HTTP/{version}: {first / MIB:.1f} MiB, then {second / MIB:.1f} MiB")
    assert second < first + 8 * MIB
