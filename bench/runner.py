"""One bench: contestants in rounds, each run with a fresh server; the results are plain data."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import re
import resource
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import generators
from .generators import GIVE_UP_SECONDS, GeneratorError, Load
from .machine import Others, Ticks
from .processes import Server, cpu_seconds, memory_kib, pinned
from .tables import Contestant, Workload

SERVER_CORE, GENERATOR_CORE = 0, 1
READY_SECONDS = 10
FAILURES = 2
"""Number of failed runs after which a contestant is skipped under that load by that generator."""
FOREIGN_LIMIT = 0.1
"""Processors that other work may use during a run that counts as quiet."""


class RunError(Exception):
    """A run that is not a valid measurement, with the reason."""


@dataclass(frozen=True)
class Entrant:
    """An installed contestant, with its program and version."""

    contestant: Contestant
    program: Path
    version: str


@dataclass(frozen=True)
class Options:
    entrants: Sequence[Entrant]
    contestants: Mapping[str, Contestant]
    """All contestants of the tables, including those that proxies need as upstreams."""
    workloads: Sequence[Workload]
    programs: dict[str, Path]
    """The installed generators."""
    rounds: int
    repeats: int
    """Number of retries when the machine was not quiet."""
    seed: int
    scale: float
    """Fraction of the table's requests to send."""
    folder: Path
    target: Path


class Bench:
    def __init__(self, options: Options):
        self.options = options
        self.work = options.folder / "work"
        self.work.mkdir(parents=True)
        self.root = self.work / "root"
        self.root.mkdir()
        (self.root / "13.txt").write_bytes(b"Hello, World!")
        (self.root / "1m.bin").write_bytes(random.Random(options.seed).randbytes(1 << 20))
        # A server may drop root's privileges and must still be able to read the files.
        self.certificates = {
            name: make_certificate(self.work, name) for name in ("p256", "rsa2048")
        }
        self.number = 0

    def runs(self, workloads: Sequence[Workload], names: Sequence[str]) -> Iterable[dict]:
        """Runs everything with the generators of these names; returns the measured runs in the
        order in which they ran.
        """
        order = random.Random(self.options.seed)
        failures: Counter[tuple[str, str, str]] = Counter()
        for workload in workloads:
            entrants = [
                entrant
                for entrant in self.options.entrants
                if workload.protocol in entrant.contestant.protocols
                and workload.handler in entrant.contestant.handlers
                and (entrant.contestant.websocket is not None or not workload.websocket)
            ]
            for turn in range(1, self.options.rounds + 1):
                for entrant in order.sample(entrants, len(entrants)):
                    for name in workload.generators:
                        cell = (workload.name, name, entrant.contestant.name)
                        if name in names and failures[cell] < FAILURES:
                            run = self.quiet_run(workload, entrant, name, turn)
                            failures[cell] += run["error"] is not None
                            yield run

    def quiet_run(self, workload: Workload, entrant: Entrant, generator: str, turn: int) -> dict:
        """Returns the first run on a quiet machine, or the quietest of the allowed tries."""
        best: dict | None = None
        for attempt in range(1, self.options.repeats + 2):
            run = self.run(workload, entrant, generator, turn) | {"attempt": attempt}
            if best is None or noise(run) < noise(best):
                best = run
            if run["error"] is not None or run["quiet"]:
                break
        return best

    def run(self, workload: Workload, entrant: Entrant, generator: str, turn: int) -> dict:
        self.number += 1
        if workload.websocket:
            workload = dataclasses.replace(workload, file=entrant.contestant.websocket)
        record = {
            "workload": workload.name,
            "contestant": entrant.contestant.name,
            "generator": generator,
            "round": turn,
            "number": self.number,
            "figures": {},
            "load": None,
            "quiet": False,
            "foreign_cores": None,
            "error": None,
        }
        server = None
        with contextlib.ExitStack() as started:
            try:
                server, port, upstream = self.start(workload, entrant, started)
                return record | self.measure(workload, generator, server, port, upstream)
            except (
                RunError,
                GeneratorError,
                OSError,
                ValueError,
                KeyError,
                subprocess.SubprocessError,
            ) as error:
                died = server.ended() if server is not None else None
                return record | {"error": died or f"{type(error).__name__}: {error}"}

    def start(
        self, workload: Workload, entrant: Entrant, started: contextlib.ExitStack
    ) -> tuple[Server, int, Server | None]:
        """Starts a contestant, and its upstream if it has one; `started` stops them.

        Returns the server, its port and the upstream.
        """
        upstream, upstream_port = None, None
        if entrant.contestant.behind is not None:
            other = self.options.contestants[entrant.contestant.behind]
            program = other.program(self.options.target)
            if program is None:
                raise RunError(f"{other.name}: {other.why_absent()}")
            clear = dataclasses.replace(workload, protocol="h1-clear")
            upstream, upstream_port = self.launch(
                clear, other, program, GENERATOR_CORE, None, started
            )
        contestant, program = entrant.contestant, entrant.program
        server, port = self.launch(
            workload, contestant, program, SERVER_CORE, upstream_port, started
        )
        return server, port, upstream

    def launch(
        self,
        workload: Workload,
        contestant: Contestant,
        program: Path,
        core: int,
        upstream: int | None,
        started: contextlib.ExitStack,
    ) -> tuple[Server, int]:
        port = free_port()
        work = self.work / f"{self.number}-{contestant.name}"
        work.mkdir()
        cert, key = self.certificates[workload.certificate]
        values = {
            "path": program,
            "port": port,
            "root": self.root,
            "cert": cert,
            "key": key,
            "work": work,
            "config": work / "config",
            "bench": Path(__file__).parent,
            "target": self.options.target,
            "protocol": workload.protocol,
            "handler": workload.handler,
            "upstream": upstream,
        }
        if contestant.config is not None:
            text = (Path(__file__).parent / contestant.config).read_text()
            if os.geteuid() != 0:
                # Only root can, and must, name the user that a server runs as.
                text = re.sub(r"^.*@USER@.*\n", "", text, flags=re.MULTILINE)
            for name, value in {**values, "user": "root"}.items():
                text = text.replace(f"@{name.upper()}@", str(value))
            values["config"].write_text(text)
        more = contestant.arguments.get(workload.kind, ())
        command = [part.format(**values) for part in (*contestant.start, *more)]
        environment = {"HOME": str(work), "XDG_DATA_HOME": str(work), "XDG_CONFIG_HOME": str(work)}
        server = Server(command, core, work / "log", environment)
        started.callback(server.stop)
        self.wait_until_ready(server, workload.protocol, port)
        return server, port

    def wait_until_ready(self, server: Server, protocol: str, port: int) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while True:
            answer = self.fetch(protocol, port)
            if answer.returncode == 0 and answer.stdout == b"Hello, World!":
                return
            if (why := server.ended()) is not None:
                raise RunError(why)
            if time.monotonic() > deadline:
                raise RunError(
                    f"no answer over {protocol} within {READY_SECONDS} s: {answer.stderr[-200:]!r}"
                )
            time.sleep(0.05)

    def fetch(self, protocol: str, port: int) -> subprocess.CompletedProcess[bytes]:
        command = [str(self.options.programs["load"]), "get", "--no-verify", "-v"]
        command += ["--http", generators.VERSIONS[protocol], "--connect-to", f"127.0.0.1:{port}"]
        scheme = "http" if protocol == "h1-clear" else "https"
        command += ["--timeout", "2", f"{scheme}://localhost:{port}/13.txt"]
        return subprocess.run(command, capture_output=True, timeout=READY_SECONDS, check=False)

    def fields(self, entrant: Entrant, protocol: str) -> list[str]:
        """Returns the header fields of a contestant's response, for the report."""
        workload = dataclasses.replace(
            self.options.workloads[0],
            protocol=protocol,
            kind="requests",
            certificate="p256",
            handler="raw",
        )
        self.number += 1
        with contextlib.ExitStack() as started:
            _, port, _ = self.start(workload, entrant, started)
            lines = self.fetch(protocol, port).stderr.decode(errors="replace").splitlines()
        return sorted(
            line[2:].split(":")[0] for line in lines if line.startswith("< ") and ":" in line
        )

    def measure(
        self, workload: Workload, generator: str, server: Server, port: int, upstream: Server | None
    ) -> dict:
        requests = max(workload.connections, int(workload.requests * self.options.scale))
        if workload.kind != "idle":
            # After a warm-up of the same size, heaps have reached their working size.
            part = 1 if workload.kind == "memory" else 10
            warm_up = max(20, requests // part) if workload.requests else 2000
            self.generate(workload, generator, port, warm_up)
        pids = server.pids()
        memory = memory_kib(pids)
        beside = upstream.pids() if upstream is not None else []
        before, cpu, own = Ticks.now(), cpu_seconds(pids), own_seconds() + cpu_seconds(beside)
        if workload.kind == "idle":
            load, memory_loaded = self.hold(workload, port, server)
        else:
            load = self.generate(workload, generator, port, requests if workload.requests else None)
            memory_loaded = memory_kib(server.pids())
        cpu, own = cpu_seconds(server.pids()) - cpu, own_seconds() + cpu_seconds(beside) - own
        others = Others.between(before, Ticks.now(), cpu + own)
        if (why := server.ended()) is not None:
            raise RunError(why)
        check(workload, load, requests if workload.requests else None)
        return {
            "load": load.as_dict(),
            "server_cpu_seconds": cpu,
            "memory_kib": {"before": memory, "loaded": memory_loaded},
            "foreign_cores": others.foreign,
            "stolen_cores": others.stolen,
            "quiet": others.foreign + others.stolen <= FOREIGN_LIMIT,
            "figures": figures(workload, load, cpu, memory, memory_loaded),
        }

    def generate(self, workload: Workload, generator: str, port: int, requests: int | None) -> Load:
        """Runs a generator to its end."""
        command = self.command(workload, generator, port, requests)
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=GIVE_UP_SECONDS, check=False
        )
        return parse(generator, ended.returncode, ended.stdout, ended.stderr)

    def hold(self, workload: Workload, port: int, server: Server) -> tuple[Load, tuple[int, int]]:
        """Samples memory while all connections are open and nearly idle; returns the median."""
        command = self.command(workload, "load", port, None)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        seen = []
        deadline = time.monotonic() + GIVE_UP_SECONDS
        try:
            while process.poll() is None:
                if time.monotonic() > deadline:
                    raise RunError(
                        f"{workload.connections} connections were not open within {GIVE_UP_SECONDS} s"
                    )
                seen.append((time.monotonic(), memory_kib(server.pids())))
                time.sleep(0.2)
            ended = time.monotonic()
            stdout, stderr = process.communicate()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        load = parse("load", process.returncode, stdout, stderr)
        # The measured seconds are the last ones: connections are opened before them, and closed at
        # the very end.
        settled = [memory for at, memory in seen if ended - load.seconds + 0.5 < at < ended - 0.7]
        if not settled:
            raise RunError("no memory sample while the connections were idle")
        return load, sorted(settled)[len(settled) // 2]

    def command(
        self, workload: Workload, generator: str, port: int, requests: int | None
    ) -> list[str]:
        build = {"load": generators.load_command, "h2load": generators.h2load_command}[generator]
        return pinned(
            GENERATOR_CORE, build(self.options.programs[generator], workload, port, requests)
        )


def noise(run: dict) -> float:
    return float("inf") if run["error"] is not None else run["foreign_cores"] + run["stolen_cores"]


def parse(generator: str, code: int, stdout: str, stderr: str) -> Load:
    if not stdout.strip():
        raise GeneratorError(f"{generator} ended with {code}: {stderr.strip()[-300:]}")
    return generators.parse_load(stdout) if generator == "load" else generators.parse_h2load(stdout)


def own_seconds() -> float:
    """Returns the CPU time of this process and of the generators that have ended."""
    spent = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        spent += usage.ru_utime + usage.ru_stime
    return spent


def check(workload: Workload, load: Load, requests: int | None) -> None:
    """Rejects a run unless the server did all the requested work."""
    if load.failed:
        raise RunError(f"{load.failed} of {load.requests + load.failed} requests failed")
    if requests is not None and load.requests != requests:
        raise RunError(f"{load.requests} of {requests} requests were answered")
    if workload.resume and load.resumed is not None and load.resumed < 0.99 * load.requests:
        raise RunError(f"only {load.resumed} of {load.requests} connections were resumed")
    if workload.websocket and load.websockets != workload.connections * workload.streams:
        raise RunError(
            f"{load.websockets} of {workload.connections * workload.streams} WebSockets were open to the end"
        )
    if workload.kind == "idle" and not 0.9 < load.connections / workload.connections <= 1.01:
        raise RunError(f"{load.connections} of {workload.connections} connections were opened")


def figures(
    workload: Workload, load: Load, cpu: float, before: tuple[int, int], loaded: tuple[int, int]
) -> dict[str, float | None]:
    match workload.kind:
        case "requests":
            return {
                "cpu_us_per_request": cpu / load.requests * 1e6,
                "requests_per_second": load.requests_per_second,
                "p50_ms": load.p50_ms,
                "p99_ms": load.p99_ms,
            }
        case "transfer":
            return {
                "cpu_s_per_gib": cpu / (load.body_bytes / (1 << 30)),
                "gbit_per_second": load.body_bytes * 8 / load.seconds / 1e9,
            }
        case "handshakes":
            return {
                "cpu_ms_per_connection": cpu / load.requests * 1e3,
                "p50_ms": load.p50_ms,
                "p99_ms": load.p99_ms,
            }
        case "memory":
            growth = loaded[0] - before[0]
            return {
                "rss_growth_mib": growth / 1024,
                "rss_bytes_per_request": growth * 1024 / load.requests,
            }
        case _:
            return {
                "rss_kib_per_connection": (loaded[0] - before[0]) / load.connections,
                "pss_kib_per_connection": (loaded[1] - before[1]) / load.connections,
            }


def free_port() -> int:
    """Returns a port that is free for TCP and UDP. No other process here picks ports."""
    while True:
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            port = tcp.getsockname()[1]
            try:
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    kind = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if name == "p256" else ["rsa:2048"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-nodes",
        "-days",
        "10",
        "-subj",
        "/CN=localhost",
        "-newkey",
        *kind,
    ]
    command += [
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(cert),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def version_of(contestant: Contestant, program: Path, target: Path) -> str:
    values = {"path": program, "target": target, "bench": Path(__file__).parent}
    command = [part.format(**values) for part in contestant.version]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({error})"
    matches = re.findall(contestant.version_pattern, ended.stdout + ended.stderr)
    return ", ".join(" ".join(match.split()) for match in dict.fromkeys(matches)) or "unknown"


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def describe_run(run: dict) -> str:
    head = f"{run['workload']} round {run['round']} {run['contestant']} by {run['generator']}"
    if run["error"] is not None:
        return f"{head}: FAILED: {run['error']}"
    measure, value = next(iter(run["figures"].items()))
    quiet = "" if run["quiet"] else f" (other load: {run['foreign_cores']:.2f} cores)"
    return f"{head}: {measure} {value:.3f}{quiet}"


def write_json(path: Path, data: dict) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n")
