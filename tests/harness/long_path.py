"""Measures how much of a path's capacity one stream uses: a server and a client at the ends of an
emulated link.

    python -m harness.long_path --loss 0 --loss 0.1 --mebibytes 100

prints a line of Markdown for each case. The links are those of `pronghorn link`, so the system is
not changed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .certificates import Identity, make_identity
from .server import echo, pronghorn

RATE_MBIT_PER_SECOND = 100
ROUND_TRIP_MS = 100
ADDRESS = "10.77.0.2"

PROFILE = """
name = "long-path"
[up]
rate_mbit_per_second = {rate}
delay_ms = {delay}
loss_percent = {loss}
queue_ms = {queue}
[down]
rate_mbit_per_second = {rate}
delay_ms = {delay}
loss_percent = {loss}
queue_ms = {queue}
"""


@dataclass(frozen=True)
class Case:
    version: str
    """HTTP version: 2 or 3."""
    congestion: str
    direction: str
    """`down` or `up`."""
    loss_percent: float
    mebibytes: float


@dataclass(frozen=True)
class Outcome:
    goodput: float
    """Throughput of one stream's content, in Mbit/s, from the request to the last byte of the
    response.
    """
    lost_percent: float
    """Fraction of the sent packets that the queue dropped, without the configured loss."""
    clean: bool
    """Whether the link kept its deadlines."""

    @property
    def fill(self) -> float:
        """Returns content as a fraction of the link's capacity, headers included."""
        return self.goodput / RATE_MBIT_PER_SECOND


def measure(case: Case, identity: Identity, folder: Path, *, seed: int = 1) -> Outcome:
    """Runs one transfer on one stream, over a path of 100 Mbit/s and 100 ms with a queue of one
    bandwidth-delay product.
    """
    profile, report = folder / "profile.toml", folder / "report.json"
    profile.write_text(
        PROFILE.format(
            rate=RATE_MBIT_PER_SECOND,
            delay=ROUND_TRIP_MS / 2,
            queue=ROUND_TRIP_MS,
            loss=case.loss_percent,
        )
    )
    size = int(case.mebibytes * 2**20)
    certificate = ["--cert", identity.cert, "--key", identity.key]
    far = [echo(), "--listen", f"{ADDRESS}:443", *certificate, "--congestion", case.congestion]
    near = [
        pronghorn(),
        "load",
        "--http",
        case.version,
        "-n",
        "1",
        "--json",
        "--timeout",
        "600",
        "--no-verify",
    ]
    near += ["--congestion", case.congestion]
    if case.direction == "up":
        near += ["--data-size", size, f"https://{ADDRESS}/upload"]
    else:
        near += [f"https://{ADDRESS}/bytes/{size}"]
    kernel_name = {"newreno": "reno"}.get(case.congestion, case.congestion)
    link = [
        pronghorn(),
        "link",
        profile,
        "--seed",
        seed,
        "--tcp-congestion",
        kernel_name,
        "--report",
        report,
    ]
    link += ["--far", shlex.join(map(str, far)), "--far-ready", 443, "--", *near]
    done = subprocess.run([str(part) for part in link], capture_output=True, text=True, timeout=700)
    assert done.returncode == 0, done.stderr
    load, seen = json.loads(done.stdout), json.loads(report.read_text())
    assert load["requests"]["status"]["2xx"] == 1, load["requests"]
    way = seen[case.direction]
    return Outcome(
        goodput=size * 8 / load["measured_seconds"] / 1e6,
        lost_percent=100 * way["packets_queue_dropped"] / way["packets_in"],
        clean=seen["clean"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--version", action="append", choices=["2", "3"], help="of HTTP; repeat for more"
    )
    parser.add_argument(
        "--congestion", action="append", choices=["cubic", "bbr", "newreno"], help="repeat for more"
    )
    parser.add_argument(
        "--direction", action="append", choices=["down", "up"], help="repeat for more"
    )
    parser.add_argument("--loss", action="append", type=float, help="percent; repeat for more")
    parser.add_argument("--mebibytes", type=float, default=100, help="content of the transfer")
    parser.add_argument(
        "--rounds", type=int, default=1, help="each with another seed; medians are printed"
    )
    asked = parser.parse_args()
    cases = itertools.product(
        asked.loss or [0.0],
        asked.congestion or ["cubic", "bbr"],
        asked.direction or ["down", "up"],
        asked.version or ["2", "3"],
    )
    print(
        "| loss | control | direction | HTTP | MiB | Mbit/s | least and most | lost in the queue | clean |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        identity = make_identity(Path(folder))
        for loss, congestion, direction, version in cases:
            case = Case(version, congestion, direction, loss, asked.mebibytes)
            rounds = [
                measure(case, identity, Path(folder), seed=seed + 1) for seed in range(asked.rounds)
            ]
            rates = [outcome.goodput for outcome in rounds]
            queue = statistics.median(outcome.lost_percent for outcome in rounds)
            print(
                f"| {loss} % | {congestion} | {direction} | {version} | {asked.mebibytes:g} "
                f"| {statistics.median(rates):.1f} | {min(rates):.1f}-{max(rates):.1f} | {queue:.1f} % "
                f"| {sum(outcome.clean for outcome in rounds)} of {len(rounds)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
