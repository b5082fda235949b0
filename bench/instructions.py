"""`make instructions`: compares the server's instructions per unit of work with the recorded
counts.

Instruction counts are stable on a busy machine, times are not. Needs valgrind, and nothing beyond
the Python standard library.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .ours import OursError, gateway, generate, make_certificate, running

HERE = Path(__file__).resolve().parent
TABLE = HERE / "instructions.toml"
OUTPUT = "callgrind.out"
BUILDS = ("quick", "release")
"""Profiles of Cargo.toml.

`make test` counts the first, which builds in a fraction of the other's time.
"""
TRIES = 3
"""Number of tries for a count that is too high: disturbances only increase a count, so the lowest
is the most accurate.
"""


@dataclass(frozen=True)
class Count:
    name: str
    load: tuple[str, ...]
    path: str
    fewer: int
    more: int
    growth: float
    instructions: int
    proxied: bool = False
    """Counts a gateway that forwards requests, instead of the handler; the upstream's instructions
    are not included.
    """

    def verdict(self, measured: float) -> str:
        if measured > self.instructions * (1 + self.growth):
            return "grown"
        return "shrunk" if measured < self.instructions * (1 - self.growth) else "ok"


@dataclass(frozen=True)
class Programs:
    handler: Path
    program: Path
    """Provides the load generator, the gateway and its upstream."""


def read_table(text: str, build: str) -> tuple[str, list[Count]]:
    """Returns the class of the machine, and the counts for a build's programs (a key of each
    entry).
    """
    table = tomllib.loads(text)
    counts = []
    for entry in table["count"]:
        kept = {name: entry.pop(name, 0) for name in BUILDS}
        counts.append(Count(**{**entry, "load": tuple(entry["load"])}, instructions=kept[build]))
    return table["class"], counts


def with_counts(text: str, machine: str, build: str, measured: dict[str, float]) -> str:
    """Returns the table's text with new counts; the rest is unchanged."""
    text = re.sub(r'^class = ".*"$', f'class = "{machine}"', text, count=1, flags=re.MULTILINE)
    for name, value in measured.items():
        entry = rf'(^name = "{re.escape(name)}"$(?:(?!^name = ).)*?^{build} = )[\d_]+$'
        text, replaced = re.subn(
            entry, rf"\g<1>{round(value):_}", text, count=1, flags=re.MULTILINE | re.DOTALL
        )
        if not replaced:
            raise OursError(f"no entry '{name}' with `{build}` after its name")
    return text


def machine_class(valgrind: str, flags: Sequence[str]) -> str:
    """Returns the class of machines with equal counts: valgrind reports one of a few processors to
    programs, whatever the real one is.
    """
    version = re.search(r"valgrind-(\d+\.\d+)", valgrind)
    simd = next((level for level in ("avx2", "avx") if level in flags), "sse")
    libc = " ".join(platform.libc_ver())
    return f"{platform.machine()} {simd}, valgrind {version[1] if version else '?'}, {libc}"


def this_class() -> str:
    shown = subprocess.run(
        ["valgrind", "--version"], capture_output=True, text=True, check=True
    ).stdout
    flags = re.search(r"^flags\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return machine_class(shown, flags[1].split() if flags else [])


def per_unit(entry: Count, count: Callable[[int], int]) -> float:
    return (count(entry.more) - count(entry.fewer)) / (entry.more - entry.fewer)


def collected(path: Path) -> int:
    """Reads the total of a callgrind file."""
    for line in reversed(path.read_text(errors="replace").splitlines()):
        if match := re.match(r"(?:totals|summary): (\d+)", line):
            return int(match[1])
    raise OursError(f"{path.name} has no total")


def count_run(programs: Programs, entry: Count, units: int, work: Path) -> int:
    """Counts a server's instructions from its start to its end, with this many units of work
    between.
    """
    output = work / OUTPUT
    output.unlink(missing_ok=True)
    counted = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}"]
    if entry.proxied:
        with running(gateway(programs.program, work / "upstream", UPSTREAM), work) as upstream:
            routes = PASS_ON.format(port=upstream)
            with running(
                counted + gateway(programs.program, work / "gateway", routes, work), work
            ) as port:
                generate(
                    programs.program, entry.load, units, f"https://127.0.0.1:{port}{entry.path}"
                )
    else:
        command = [str(programs.handler), "--listen", "127.0.0.1:0"]
        command += ["--cert", str(work / "cert.pem"), "--key", str(work / "key.pem")]
        with running(counted + command, work) as port:
            generate(programs.program, entry.load, units, f"https://127.0.0.1:{port}{entry.path}")
    return collected(output)


UPSTREAM = """
[[sites.routes]]
match = { path = "/bytes/13" }
respond = "thirteen byte"
"""
PASS_ON = """
[[sites.routes]]
proxy = {{ servers = ["http://127.0.0.1:{port}"] }}
"""


def taken_counts(
    programs: Programs, entry: Count, judged: bool, options: argparse.Namespace
) -> list[float]:
    """Counts one entry until it is within its bound, or the number of tries is reached."""
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        make_certificate(work)
        for _ in range(options.repeat or TRIES):
            taken.append(per_unit(entry, lambda units: count_run(programs, entry, units, work)))
            if options.repeat is None and (not judged or entry.verdict(min(taken)) != "grown"):
                break
        if options.profile:
            options.profile.mkdir(parents=True, exist_ok=True)
            count_run(programs, entry, entry.more, work)
            shutil.copy(
                work / OUTPUT,
                options.profile / f"{re.sub('[^a-z0-9]+', '-', entry.name.lower())}.out",
            )
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__)
    parser.add_argument(
        "--build",
        choices=BUILDS,
        default=BUILDS[0],
        help="whose counts to compare with (default: quick)",
    )
    parser.add_argument(
        "--update", action="store_true", help="write what was counted to instructions.toml"
    )
    parser.add_argument(
        "--repeat", type=int, metavar="N", help="count each N times, print all, and judge nothing"
    )
    parser.add_argument(
        "--profile", type=Path, metavar="FOLDER", help="keep what callgrind wrote here"
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="counts whose name holds this")
    options = parser.parse_args()
    built = Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parent / "target") / options.build
    programs = Programs(
        Path(os.environ.get("PRONGHORN_ECHO") or built / "examples/echo").resolve(),
        Path(os.environ.get("PRONGHORN") or built / "pronghorn").resolve(),
    )
    text = TABLE.read_text()
    of_class, counts = read_table(text, options.build)
    machine = this_class()
    judged = machine == of_class and not options.update and not options.repeat
    print(
        f"machine: {machine}"
        + ("" if judged or options.update else f"; counts are recorded for: {of_class}")
    )
    measured: dict[str, float] = {}
    grown = []
    chosen = [entry for entry in counts if options.only in entry.name]
    # Counts do not depend on what else the machine does.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for entry, taken in zip(
            chosen,
            pool.map(lambda entry: taken_counts(programs, entry, judged, options), chosen),
            strict=True,
        ):
            measured[entry.name] = min(taken)
            print(line(entry, taken, judged), flush=True)
            if judged and entry.verdict(min(taken)) == "grown":
                grown.append(entry.name)
    if options.update:
        TABLE.write_text(with_counts(text, machine, options.build, measured))
        print(f"written to {TABLE.relative_to(HERE.parent)}")
    if not judged and not options.update and not options.repeat:
        print("counts are not compared: the recorded ones are of another class of machine")
    if grown:
        print(
            f"error: more instructions than allowed by instructions.toml: {'; '.join(grown)}",
            file=sys.stderr,
        )
        print(
            "If that is meant, run `make instructions INSTRUCTIONS_ARGS=--update`, and `make instructions-released` "
            "with the same, and say why in the commit.",
            file=sys.stderr,
        )
    return 1 if grown else 0


def line(entry: Count, taken: Sequence[float], judged: bool) -> str:
    numbers = ", ".join(f"{value:,.0f}" for value in taken)
    known = f"; recorded {entry.instructions:,}" if entry.instructions else ""
    change = f" ({min(taken) / entry.instructions - 1:+.1%})" if entry.instructions else ""
    return f"{entry.name}: {numbers}{known}{change}" + (
        f": {entry.verdict(min(taken))}" if judged else ""
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OursError, OSError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
