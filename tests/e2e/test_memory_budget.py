"""One memory budget for the process: peers that stall cannot make it hold more."""

from __future__ import annotations

import re
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.admin import metrics
from harness.clients.go import GoClient
from harness.gateway import SITE
from harness.stalled import StalledClient, StalledUpstream
from harness.waiting import eventually

MIB = 1 << 20
VERSIONS = pytest.mark.parametrize("version", ["2", "3"])


@dataclass
class Scale:
    budget: int
    """The configured budget, in MiB."""
    resident: int
    """The most that may be resident, in MiB."""
    each: int
    """Number of uploads, and of downloads."""
    size: int
    """Bytes of each."""
    seconds: int
    """Time for the exchanges to complete once they are released."""


ORDINARY = Scale(budget=96, resident=115, each=300, size=400_000, seconds=90)
"""Small enough for a busy machine. The program itself is a third of it."""
FULL = Scale(budget=256, resident=280, each=2_000, size=400_000, seconds=1_500)


def resident(server) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) // 1024


def configure(gateway, upstream: str, scale: Scale) -> list:
    route = f"""
[[sites.routes]]
proxy = {{ servers = ["{upstream}"], head_timeout = "1h", body_timeout = "1h", connections = 9_999, requests = 9_999 }}
"""
    limits = f"""
[limits]
memory = "{scale.budget}MiB"
response_timeout = "1h"
body_timeout = "1h"
open_requests = 10_000
connections_per_client = 10_000
"""
    gateway.write(limits + SITE + route, server='state_dir = "state"', workers=2)
    return gateway.command()


def values(gateway) -> dict[str, int]:
    found = metrics(gateway.folder / "state/admin.sock")
    prefix = "pronghorn_"
    return {name.removeprefix(prefix): int(value) for name, value in found.items()}


def stall(gateway, client: StalledClient, server, scale: Scale) -> int:
    """Waits until every request is in progress or refused, and no more is exchanged. Returns the
    most that was resident, in MiB.
    """
    most, quiet = 0, 0
    before: tuple[int, int] | None = None
    deadline = time.monotonic() + scale.seconds
    while quiet < 20:
        assert time.monotonic() < deadline, f"still busy: {client.progress}"
        most = max(most, resident(server))
        progress = client.progress
        is_refused = progress.get("refused", 0) + progress.get("retried", 0) > 0
        is_begun = is_refused or (
            progress.get("heads", 0) == scale.each
            and values(gateway)["requests_open"] == 2 * scale.each
        )
        now = (progress.get("sent", 0), progress.get("heads", 0))
        quiet = quiet + 1 if is_begun and now == before else 0
        before = now
        time.sleep(0.1)
    return most


def slowest(client: GoClient, url: str) -> float:
    """Returns the 99th percentile of the times of requests to another upstream, in seconds."""
    times = []
    for _ in range(300):
        began = time.perf_counter()
        assert client.fetch(f"{url}/healthy", method="GET").status == 200
        times.append(time.perf_counter() - began)
    return statistics.quantiles(times, n=100)[98]


def check_bounded(gateway, start, version: str, scale: Scale, *, is_timed: bool = False) -> None:
    with StalledUpstream() as upstream:
        server = start(configure(gateway, upstream.address, scale))
        base = values(gateway)
        assert base["memory_budget_bytes"] == scale.budget * MIB
        url, ca = f"https://localhost:{server.port}", gateway.identity.ca
        load = {"uploads": scale.each, "downloads": scale.each, "bytes": scale.size}
        with ExitStack() as stack:
            other = stack.enter_context(GoClient(version, ca))
            idle = slowest(other, url) if is_timed else None
            client = stack.enter_context(StalledClient(version, url, ca, per_connection=50, **load))
            most = stall(gateway, client, server, scale)
            stalled = values(gateway)
            assert stalled["memory_pressure_step"] >= 1, stalled["memory_held_bytes"]
            assert client.progress["completed"] == 0
            if idle is not None:
                # Some milliseconds are the machine's.
                assert slowest(other, url) <= 2 * idle + 0.005
            upstream.release()
            client.release()
            done = client.finish(scale.seconds)
        most = max(most, resident(server))
        # The client has compared what came back: all of it is right.
        assert done["completed"] == 2 * scale.each
        assert most <= scale.resident, f"{most} MiB resident"
        lines = "\n".join(server.lines)
        assert "memory pressure rises from step 0 to step 1 (small_windows)" in lines
        # The client has closed its connections.
        eventually(
            "memory is free again",
            lambda: values(gateway)["memory_held_bytes"] < base["memory_held_bytes"] + 8 * MIB,
        )
        check_recovered(gateway, url, version)


def check_recovered(gateway, url: str, version: str) -> None:
    """Without pressure, an upload is fast again: its window grows."""
    eventually("pressure has ended", lambda: values(gateway)["memory_pressure_step"] <= 1)
    with GoClient(version, gateway.identity.ca) as client:
        answer = client.fetch(f"{url}/healthy", method="POST", body=bytes(1_000_000))
        assert (answer.status, answer.size) == (200, 1_000_000)


@VERSIONS
def test_stalled_exchanges_stay_within_the_budget_and_complete(gateway, start, version):
    check_bounded(gateway, start, version, ORDINARY)


@pytest.mark.long
@pytest.mark.serial
@pytest.mark.timeout(3_600)
@VERSIONS
def test_thousands_of_stalled_exchanges_stay_within_the_budget(gateway, start, version):
    check_bounded(gateway, start, version, FULL, is_timed=True)


def test_requests_get_503_when_the_budget_is_used_up(gateway, start):
    # The program alone uses all of it.
    scale = Scale(budget=8, resident=0, each=0, size=0, seconds=0)
    with StalledUpstream() as upstream:
        server = start(configure(gateway, upstream.address, scale))
        server.wait_for_lines(r"the program itself uses \d+ MiB of the 8 MiB of the limit `memory`")
        assert values(gateway)["memory_pressure_step"] == 5
