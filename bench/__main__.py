"""`python -m bench`: the command line of the bench, and the namespace it runs in."""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from . import machine
from .plots import draw
from .report import markdown, verdicts
from .runner import (
    FOREIGN_LIMIT,
    Bench,
    Entrant,
    Options,
    RunError,
    describe_run,
    say,
    version_of,
    write_json,
)
from .summary import Verdict, si, spreads
from .tables import SUBJECT, Contestant, TableError, read_contestants, read_workloads, select

HERE = Path(__file__).resolve().parent
INSIDE = "PRONGHORN_BENCH_INSIDE"
SUITES = {"servers": HERE, "node": HERE / "node", "proxy": HERE / "proxy"}
"""Location of each suite's tables: servers, JavaScript runtimes and frameworks, and reverse
proxies.
"""
QUICK = ["--rounds", "1", "--repeats", "0"]
QUICK_OF = {
    "servers": [
        *["--workloads", "small-10x100,small-50x1,large-4x4,handshake-p256", "--scale", "0.1"],
        *["--only", "pronghorn,nginx,h2o,quinn-h3,quic-go"],
    ],
    "node": ["--workloads", "h3-10x100,h2-10x100,h1-10x1", "--scale", "0.05"],
    "proxy": ["--workloads", "proxy-h2-10x100,proxy-h3-10x100", "--scale", "0.1"],
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure Pronghorn and its peers. See BENCHMARKING.md."
    )
    parser.add_argument(
        "--suite", choices=SUITES, default="servers", help="what is compared [default: servers]"
    )
    parser.add_argument(
        "--only",
        metavar="NAMES",
        help="contestants, such as pronghorn,h2o [default: all installed]",
    )
    parser.add_argument(
        "--workloads", metavar="NAMES", help="workloads, such as small-10x100,h2-* [default: all]"
    )
    parser.add_argument(
        "--generator", choices=["load", "h2load"], help="only this one [default: each that can]"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="times that each contestant is measured [default: 5]"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=2,
        help="times a run is tried again on a busy machine [default: 2]",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of the order within the rounds [default: 1]"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="part of the table's requests to send [default: 1]"
    )
    parser.add_argument(
        "--minutes", type=float, help="end after so long, and report what was measured"
    )
    parser.add_argument(
        "--name", default="bench", help="end of the result folder's name [default: bench]"
    )
    parser.add_argument(
        "--out", type=Path, help="folder for the results [default: bench/results/DATE-NAME]"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="measure for a minute: one small round of some workloads",
    )
    parser.add_argument(
        "--list", action="store_true", help="print contestants and workloads, and end"
    )
    given = sys.argv[1:]
    parsed = parser.parse_args(given)
    return parser.parse_args([*QUICK, *QUICK_OF[parsed.suite], *given]) if parsed.quick else parsed


def main() -> int:
    options = arguments()
    try:
        contestants = read_contestants(SUITES[options.suite] / "contestants.toml")
        workloads = read_workloads(SUITES[options.suite] / "workloads.toml", contestants)
        if options.list:
            print("contestants:", *contestants, "\nworkloads:", *workloads)
            return 0
        chosen = select(contestants, options.only, "contestant")
        loads = select(workloads, options.workloads, "workload")
        target = Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parent / "target").resolve()
        present, absent = presence(chosen, target)
        programs = generators(
            read_contestants(HERE / "contestants.toml")[SUBJECT], target, options.generator
        )
    except TableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not os.environ.get(INSIDE):
        enter_namespace()
    set_up_loopback()
    for name, why in absent.items():
        say(f"without {name}: {why}")
    started = datetime.datetime.now(datetime.UTC)
    folder = options.out or HERE / "results" / f"{started:%Y-%m-%d}-{options.name}"
    if folder.exists():
        print(
            f"error: {folder} exists; choose another --name or --out, or remove it", file=sys.stderr
        )
        return 2
    entrants = [Entrant(one, path, version_of(one, path, target)) for one, path in present]
    bench = Bench(
        Options(
            entrants=entrants,
            contestants=contestants,
            workloads=loads,
            programs=programs,
            rounds=options.rounds,
            repeats=options.repeats,
            seed=options.seed,
            scale=options.scale,
            folder=folder,
            target=target,
        )
    )
    result = {
        "schema": "pronghorn-bench/1",
        "name": folder.name,
        "command": command(),
        "started": started.isoformat(timespec="seconds"),
        "seed": options.seed,
        "rounds": options.rounds,
        "repeats": options.repeats,
        "scale": options.scale,
        "foreign_limit_cores": FOREIGN_LIMIT,
        "machine": machine.describe(),
        "commit": commit(),
        "generators": {
            name: generator_version(path)
            for name, path in programs.items()
            if wanted(options, name)
        },
        "contestants": {},
        "absent": absent,
        "runs": [],
    }
    protocols = sorted({workload.protocol for workload in loads}, reverse=True)
    for entrant in entrants:
        result["contestants"][entrant.contestant.name] = {
            "version": entrant.version,
            "answers_from": entrant.contestant.answers_from,
            "notes": entrant.contestant.notes,
            "fields": fields(bench, entrant, protocols),
        }
    if options.generator == "h2load":
        # The other namespace stays, for fetching and for checking that a server is ready.
        loads = [workload for workload in loads if "h2load" in workload.generators]
    begun = time.monotonic()
    try:
        for run in bench.runs(loads, tuple(result["generators"])):
            result["runs"].append(run)
            say(describe_run(run))
            if options.minutes and time.monotonic() - begun > options.minutes * 60:
                say(f"{options.minutes:g} minutes are over; reporting the runs so far")
                break
    except KeyboardInterrupt:
        say("interrupted; reporting the runs so far")
    shutil.rmtree(bench.work)
    write_json(folder / "result.json", result)
    table = spreads(result["runs"])
    plots = draw(table, loads, tuple(result["generators"]), folder)
    (folder / "report.md").write_text(markdown(result, loads, plots))
    for found in verdicts(table, loads, tuple(result["generators"])):
        if found.value is not None:
            print(one_line(found))
    print(folder / "report.md")
    return 0


def one_line(found: Verdict) -> str:
    bound = found.bound
    against = f" by {bound.against}" if bound.against else ""
    whose = "" if bound.of == SUBJECT else f" of {bound.of}"
    what = f"{found.workload} ({found.generator}): {bound.measure}{whose}{against}"
    parts = [f"{what} {si(found.value)}", bound.words, found.word]
    return ", ".join(part for part in parts if part)


def presence(
    chosen: list[Contestant], target: Path
) -> tuple[list[tuple[Contestant, Path]], dict[str, str]]:
    present, absent = [], {}
    for contestant in chosen:
        path = contestant.program(target)
        if path is None:
            absent[contestant.name] = contestant.why_absent()
        elif (why := contestant.lacks(target)) is not None:
            absent[contestant.name] = why
        else:
            present.append((contestant, path))
    return present, absent


def generators(subject: Contestant, target: Path, only: str | None) -> dict[str, Path]:
    own = subject.program(target)
    if own is None:
        raise TableError(f"{SUBJECT}: {subject.why_absent()}; it is also needed as the generator")
    found = {"load": own}
    given = os.environ.get("PRONGHORN_BENCH_H2LOAD")
    if given:
        path = shutil.which(given)
        if path is None:
            raise TableError(f"PRONGHORN_BENCH_H2LOAD={given}: program not found")
        found["h2load"] = Path(path).resolve()
    elif only == "h2load":
        raise TableError("set PRONGHORN_BENCH_H2LOAD to the path of an h2load with HTTP/3")
    return found


def wanted(options: argparse.Namespace, generator: str) -> bool:
    return options.generator in (None, generator)


def generator_version(path: Path) -> str:
    return subprocess.run(
        [str(path), "--version"], capture_output=True, text=True, check=False
    ).stdout.strip()


def fields(bench: Bench, entrant: Entrant, protocols: list[str]) -> dict[str, list[str]]:
    """Header fields of each contestant's response; empty where there is no response, which the runs
    report.
    """
    found = {}
    for protocol in protocols:
        if protocol in entrant.contestant.protocols:
            try:
                found[protocol] = bench.fields(entrant, protocol)
            except (RunError, OSError, subprocess.SubprocessError) as error:
                say(f"{entrant.contestant.name} does not answer over {protocol}: {error}")
    return found


def command() -> str:
    variables = [
        name
        for name in sorted(os.environ)
        if name.startswith("PRONGHORN_BENCH_") and name != INSIDE
    ]
    given = " ".join(f"{name}=…" for name in variables)
    return f"{given} python -m bench {shlex.join(sys.argv[1:])}".strip()


def commit() -> str:
    described = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    return subprocess.run(described, capture_output=True, text=True, check=False).stdout.strip()


def set_up_loopback() -> None:
    """Sets the MTU of Ethernet, and one congestion control for all TCP connections."""
    subprocess.run(["ip", "link", "set", "lo", "mtu", "1500", "up"], check=True)
    # Set on the route: a namespace may not select by sysctl a congestion control that the host has
    # not allowed for all users.
    route = [
        "dev",
        "lo",
        "table",
        "local",
        "proto",
        "kernel",
        "scope",
        "host",
        "src",
        "127.0.0.1",
        "congctl",
        "cubic",
    ]
    for network in ("127.0.0.0/8", "127.0.0.1"):
        subprocess.run(["ip", "route", "replace", "local", network, *route], check=True)


def enter_namespace() -> None:
    """Starts over in namespaces of its own: no other traffic arrives there, and no process outlives
    it.
    """
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    space = ["unshare", *as_root, "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    os.environ[INSIDE] = "1"
    os.execvp(space[0], [*space, sys.executable, "-m", "bench", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
