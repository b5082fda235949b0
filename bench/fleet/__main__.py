"""`python -m bench.fleet`: what sessions in Redis and keys on a signer cost."""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from .. import machine
from ..__main__ import commit
from ..runner import FOREIGN_LIMIT, describe_run, say, write_json
from ..tables import TableError
from . import redis_server
from .arrangements import Cores, Identities, Starter
from .measure import FULL_AND_RESUMED, Plan, Suite, Workload, load_command
from .redis_server import RedisError
from .report import markdown

RESULTS = Path(__file__).resolve().parents[1] / "results"
PARTS = ("handshakes", "signatures", "turns")
QUICK = [
    "--rounds",
    "1",
    "--repeats",
    "0",
    "--handshakes",
    "50",
    "--rate",
    "20",
    "--seconds",
    "0.5",
]


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.fleet", description="See BENCHMARKING.md, `make bench-fleet`."
    )
    add = parser.add_argument
    add("--parts", metavar="NAMES", default=",".join(PARTS), help="[default: %(default)s]")
    add("--rounds", type=number(1, 1000), default=5, help="[default: %(default)s]")
    add(
        "--repeats",
        type=number(0, 10),
        default=2,
        help="times a run is tried again on a busy machine [default: %(default)s]",
    )
    add(
        "--handshakes",
        type=number(10, 10_000),
        default=2000,
        help="handshakes of a run [default: %(default)s]",
    )
    add(
        "--rate",
        type=number(1, 2000),
        default=300,
        help="handshakes a second while turns are timed [default: %(default)s]",
    )
    add(
        "--seconds",
        type=number(0.1, 60),
        default=5,
        help="time that turns are timed, and that a signer signs [default: %(default)s]",
    )
    add("--seed", type=int, default=1, help="of the order within the rounds [default: 1]")
    add(
        "--minutes",
        type=number(0.01, 24 * 60),
        default=60,
        help="start no run after so long, and report what was measured [default: %(default)s]",
    )
    add("--name", default="fleet", help="end of the result folder's name [default: fleet]")
    add("--out", type=Path, help="folder for the results [default: bench/results/DATE-NAME]")
    add("--quick", action="store_true", help="one tiny round in less than a minute")
    options = parser.parse_args(given)
    return parser.parse_args([*QUICK, *given]) if options.quick else options


def number(least: float, most: float):
    """Returns the reader of a number in this range, whole if the least one is."""

    def read(text: str) -> float:
        value = float(text) if isinstance(least, float) or "." in text else int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most}")
        return value

    read.__name__ = "number"
    return read


def prepare(options: argparse.Namespace) -> tuple[Path, Path, tuple[str, ...]]:
    """Returns the programs, and the parts to measure."""
    parts = tuple(dict.fromkeys(options.parts.split(",")))
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise TableError(f"unknown part {', '.join(unknown)}; known: {', '.join(PARTS)}")
    program = Path(os.environ.get("PRONGHORN", "target/release/pronghorn")).resolve()
    if not program.is_file():
        raise TableError(f"no program at {program}; run `make build-program`, or set PRONGHORN")
    shown = subprocess.run([str(program), "signer", "--help"], capture_output=True, check=False)
    if shown.returncode != 0:
        raise TableError(f"{program} has no command `signer`; build a current program")
    # Not needed for every part, but a run of an hour must not find out late.
    return program, redis_server.program(), parts


def main(given: list[str]) -> int:
    options = arguments(given)
    try:
        program, redis, parts = prepare(options)
    except (TableError, RedisError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    started = datetime.datetime.now(datetime.UTC)
    folder = options.out or RESULTS / f"{started:%Y-%m-%d}-{options.name}"
    if folder.exists():
        what = f"{folder} exists; choose another --name or --out, or remove it"
        print(f"error: {what}", file=sys.stderr)
        return 2
    allowed = sorted(os.sched_getaffinity(0))
    cores = Cores(allowed[0], allowed[-1])
    if cores.server == cores.others:
        say("only one processor: everything else runs beside the measured server")
    # The relay and the client of the signer run in this process.
    os.sched_setaffinity(0, {cores.others})
    plan = Plan(
        rounds=options.rounds,
        repeats=options.repeats,
        handshakes=options.handshakes,
        rate=options.rate,
        seconds=options.seconds,
        seed=options.seed,
        minutes=options.minutes,
        parts=parts,
    )
    result = {
        "schema": "pronghorn-bench-fleet/1",
        "name": folder.name,
        "command": f"python -m bench.fleet {shlex.join(given)}".strip(),
        "started": started.isoformat(timespec="seconds"),
        "seed": plan.seed,
        "rounds": plan.rounds,
        "repeats": plan.repeats,
        "handshakes": plan.handshakes,
        "rate": plan.rate,
        "seconds": plan.seconds,
        "scale": 1,
        "foreign_limit_cores": FOREIGN_LIMIT,
        "machine": machine.describe() | {"server_core": cores.server, "other_core": cores.others},
        "commit": commit(),
        "programs": {"pronghorn": version(program), "redis-server": version(redis)},
        "commands": commands(plan),
        "runs": [],
    }
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="fleet-") as work:
        suite = Suite(plan, Starter(program, redis, Identities(Path(work)), cores), Path(work))
        try:
            for run in suite.runs():
                result["runs"].append(run)
                say(describe_run(run))
        except KeyboardInterrupt:
            say("interrupted; reporting the runs so far")
    write_json(folder / "result.json", result)
    (folder / "report.md").write_text(markdown(result))
    print(folder / "report.md")
    return 0 if any(run["error"] is None for run in result["runs"]) else 1


def commands(plan: Plan) -> dict[str, str]:
    """Returns the command of each part, as the report shows it."""

    def shown(workload: Workload) -> str:
        # Ports differ from run to run.
        command = shlex.join(load_command(Path("pronghorn"), workload, 0))
        return command.replace("127.0.0.1:0", "127.0.0.1:PORT")

    timed = Workload("h3-turns", "h3", rate=plan.rate)
    early = next(workload for workload in FULL_AND_RESUMED if workload.early)
    text = shown(early).replace("--early-data", "[--early-data]").replace("--http 3", "--http 3|2")
    turns = shown(timed).replace("--http 3", "--http 3|2")
    return {
        "handshakes": f"{text} -n {plan.handshakes}",
        "signatures": "pronghorn signer -c signer.toml",
        "turns": f"{turns} -d {plan.seconds:g}",
    }


def version(path: Path) -> str:
    ended = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=False)
    return ended.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
