"""Runs of the suite: each with fresh servers; the results are plain data."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..generators import GIVE_UP_SECONDS, VERSIONS, GeneratorError, Load
from ..machine import Others, Ticks
from ..processes import cpu_seconds, pinned
from ..runner import FAILURES, FOREIGN_LIMIT, RunError, noise, own_seconds, parse
from .arrangements import CERTIFICATES, HANDSHAKES, TURNS, Arrangement, Started, Starter
from .keyless import OPCODES, KeylessError, sign_for, ski, verify
from .redis_server import Counters, Redis, RedisError, bytes_per_session, operations
from .turns import Histogram, MetricsError, exposition

CONNECTIONS = 10
MISSED_SHARE, MISSED = 0.01, 2
"""Part of a resumed load, and number in a small one, that may be resumed without early data, or not
be resumed.
"""
MESSAGE = b"a handshake"
TURN_BOUND_SECONDS = 0.002
"""Turns above this bucket's bound are counted."""
SIGNING = "signatures"


@dataclass(frozen=True)
class Workload:
    """A load of handshakes, each with one request."""

    name: str
    protocol: str
    early: bool = False
    """Resumed, with the request in early data."""
    rate: float | None = None
    """Connections a second; without it each follows an earlier one's response."""


FULL_AND_RESUMED = tuple(
    Workload(f"{protocol}-{kind}", protocol, early)
    for protocol in ("h3", "h2")
    for kind, early in (("full", False), ("early-data", True))
)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int
    repeats: int
    """Number of retries when the machine was not quiet."""
    handshakes: int
    """Handshakes of a run."""
    rate: float
    """Handshakes a second while turns are timed."""
    seconds: float
    """Time in which turns are timed, and in which a signer signs."""
    seed: int
    minutes: float
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One measurement to make: its place in the tables, and how."""

    workload: str
    contestant: str
    measure: Callable[[Path], dict]


class Suite:
    def __init__(self, plan: Plan, starter: Starter, work: Path):
        self.plan, self.starter, self.work = plan, starter, work
        self.number = 0

    def jobs(self) -> dict[str, list[list[Job]]]:
        """Returns the measurements of each part, in groups that are compared with each other."""

        def handshakes(workload: Workload) -> list[Job]:
            return [
                Job(
                    workload.name,
                    one.name,
                    lambda folder, one=one: self.load(workload, one, folder),
                )
                for one in HANDSHAKES
            ]

        def timed(protocol: str) -> list[Job]:
            workload = Workload(f"{protocol}-turns", protocol, rate=self.plan.rate)
            return [
                Job(
                    workload.name,
                    one.name,
                    lambda folder, one=one: self.turns(workload, one, folder),
                )
                for one in TURNS
            ]

        signing = [
            Job(SIGNING, kind, lambda folder, kind=kind: self.signatures(kind, folder))
            for kind in CERTIFICATES
        ]
        return {
            "handshakes": [handshakes(workload) for workload in FULL_AND_RESUMED],
            "signatures": [signing],
            "turns": [timed("h3"), timed("h2")],
        }

    def runs(self) -> Iterator[dict]:
        """Measures everything, round by round; within one, in an order drawn from the seed.

        After some failed runs a contestant is skipped. Starts no run after the time limit.
        """
        order, failures = random.Random(self.plan.seed), Counter()
        deadline = time.monotonic() + 60 * self.plan.minutes
        groups = [group for part in self.plan.parts for group in self.jobs()[part]]
        for turn in range(1, self.plan.rounds + 1):
            for group in groups:
                for job in order.sample(group, len(group)):
                    cell = (job.workload, job.contestant)
                    if failures[cell] >= FAILURES:
                        continue
                    if time.monotonic() > deadline:
                        return
                    run = self.quiet_run(job, turn, deadline)
                    failures[cell] += run["error"] is not None
                    yield run

    def quiet_run(self, job: Job, turn: int, deadline: float) -> dict:
        """Returns the first run on a quiet machine, or the quietest of the allowed tries."""
        best: dict | None = None
        for attempt in range(1, self.plan.repeats + 2):
            if best is not None and time.monotonic() > deadline:
                break
            run = self.run(job, turn) | {"attempt": attempt}
            if best is None or noise(run) < noise(best):
                best = run
            if run["error"] is not None or run["quiet"]:
                break
        return best

    def run(self, job: Job, turn: int) -> dict:
        self.number += 1
        # Short: paths of Unix sockets have at most 107 bytes.
        folder = self.work / str(self.number)
        folder.mkdir()
        record = {
            "workload": job.workload,
            "contestant": job.contestant,
            "generator": "load",
            "round": turn,
            "number": self.number,
            "figures": {},
            "quiet": False,
            "foreign_cores": None,
            "error": None,
        }
        try:
            return record | job.measure(folder)
        except (
            RunError,
            GeneratorError,
            RedisError,
            KeylessError,
            MetricsError,
            OSError,
            ValueError,
            KeyError,
            subprocess.SubprocessError,
        ) as error:
            return record | {"error": f"{type(error).__name__}: {error}"}

    # ---- handshakes --------------------------------------------------------------------------------

    def load(self, workload: Workload, arrangement: Arrangement, folder: Path) -> dict:
        """Measures the processor time of handshakes."""
        with contextlib.ExitStack() as stack:
            started = self.starter.gateway(arrangement, folder, stack)
            self.generate(workload, started, max(2 * CONNECTIONS, self.plan.handshakes // 10))
            redis = None
            if started.redis_socket is not None:
                redis = stack.enter_context(Redis(started.redis_socket))
                redis.settled()
            counted = redis.counters() if redis else None
            watch = Watch(started)
            load, early = self.generate(workload, started, self.plan.handshakes)
            spent = watch.read()
            check(workload, load, early, self.plan.handshakes)
            found = {"load": load.as_dict(), "figures": spent.figures(load), **spent.noise()}
            if redis is not None:
                # Only after the processor time was read, which this adds to.
                redis.settled()
                found["redis"] = of_redis(counted, redis.counters(), load.requests)
            return found

    def generate(self, workload: Workload, started: Started, requests: int) -> tuple[Load, int]:
        """Runs the generator to its end; returns its result, and connections with early data."""
        command = load_command(self.starter.program, workload, started.port)
        if workload.rate is None:
            command += ["-n", str(requests)]
        return self.finish(command)

    def finish(self, command: list[str]) -> tuple[Load, int]:
        ended = subprocess.run(
            pinned(self.starter.cores.others, command),
            capture_output=True,
            text=True,
            timeout=GIVE_UP_SECONDS + self.plan.seconds,
            check=False,
        )
        load = parse("load", ended.returncode, ended.stdout, ended.stderr)
        return load, json.loads(ended.stdout)["connections"]["early_data_accepted"]

    # ---- turns -------------------------------------------------------------------------------------

    def turns(self, workload: Workload, arrangement: Arrangement, folder: Path) -> dict:
        """Measures how long turns of the worker are during handshakes at a fixed rate."""
        with contextlib.ExitStack() as stack:
            started = self.starter.gateway(arrangement, folder, stack)
            warm_up = Workload("warm-up", workload.protocol)
            self.generate(warm_up, started, 2 * CONNECTIONS)
            before = Histogram.parse(exposition(started.admin))
            watch = Watch(started)
            command = load_command(self.starter.program, workload, started.port)
            load, _ = self.finish([*command, "-d", str(self.plan.seconds)])
            spent = watch.read()
            turns = Histogram.parse(exposition(started.admin)).since(before)
            check(workload, load, 0, None)
            return {
                "load": load.as_dict(),
                "turns": {"buckets": turns.buckets, "count": turns.count, "seconds": turns.seconds},
                "figures": of_turns(turns) | {"p50_ms": load.p50_ms, "p99_ms": load.p99_ms},
                **spent.noise(),
            }

    # ---- signatures --------------------------------------------------------------------------------

    def signatures(self, kind: str, folder: Path) -> dict:
        """Measures how many signatures a signer on one core makes."""
        cert = self.starter.identities.sites[kind][0]
        client, digest = self.starter.identities.gateway, hashlib.sha256(MESSAGE).digest()
        with contextlib.ExitStack() as stack:
            server, port, _ = self.starter.signer(folder, self.starter.cores.server, stack)
            arguments = (port, client, OPCODES[kind], digest, ski(cert))
            _, _, signature = sign_for(min(0.5, self.plan.seconds), *arguments)
            verify(cert, kind, MESSAGE, signature, folder)
            watch = Watch(Started(server, port, folder))
            count, seconds, _ = sign_for(self.plan.seconds, *arguments)
            spent = watch.read()
            return {"figures": of_signatures(count, seconds, spent.gateway), **spent.noise()}


@dataclass(frozen=True)
class Spent:
    """Processor time between two readings, in seconds."""

    gateway: float
    redis: float | None
    signer: float | None
    others: Others

    def figures(self, load: Load) -> dict[str, float | None]:
        def each(seconds: float | None, unit: float) -> float | None:
            return None if seconds is None else seconds / load.requests * unit

        return {
            "cpu_ms_per_handshake": each(self.gateway, 1e3),
            "redis_us_per_handshake": each(self.redis, 1e6),
            "signer_us_per_handshake": each(self.signer, 1e6),
            "p50_ms": load.p50_ms,
            "p99_ms": load.p99_ms,
        }

    def noise(self) -> dict:
        foreign, stolen = self.others.foreign, self.others.stolen
        quiet = foreign + stolen <= FOREIGN_LIMIT
        return {"foreign_cores": foreign, "stolen_cores": stolen, "quiet": quiet}


class Watch:
    """Reads processor times now, and once more."""

    def __init__(self, started: Started):
        self.started = started
        self.ticks, self.times, self.own = Ticks.now(), self.now(), own_seconds()

    def now(self) -> list[float | None]:
        servers = (self.started.gateway, self.started.redis, self.started.signer)
        return [None if server is None else cpu_seconds(server.pids()) for server in servers]

    def read(self) -> Spent:
        if (why := self.started.gateway.ended()) is not None:
            raise RunError(why)
        pairs = zip(self.now(), self.times, strict=True)
        spent = [None if after is None else after - before for after, before in pairs]
        total = sum(value for value in spent if value is not None) + own_seconds() - self.own
        return Spent(*spent, Others.between(self.ticks, Ticks.now(), total))


def load_command(program: Path, workload: Workload, port: int) -> list[str]:
    command = [str(program), "load", "--json", "--no-verify", "--timeout", "20"]
    command += ["--http", VERSIONS[workload.protocol], "--connect-to", f"127.0.0.1:{port}"]
    if workload.rate is None:
        command += ["-c", str(CONNECTIONS), "--reconnect"]
    else:
        # As many as are due in a second may be open at once.
        command += ["-c", str(max(CONNECTIONS, round(workload.rate)))]
        command += ["--connections-per-second", f"{workload.rate:g}"]
    if workload.early:
        command += ["--early-data"]
    return [*command, "https://localhost/"]


def check(workload: Workload, load: Load, early: int, handshakes: int | None) -> None:
    """Rejects a run in which not all of the handshakes were of the right kind."""
    if load.failed or not load.requests:
        raise RunError(f"{load.failed} of {load.requests + load.failed} handshakes failed")
    if handshakes is not None and load.requests != handshakes:
        raise RunError(f"{load.requests} of {handshakes} handshakes were made")
    if workload.early:
        for what, count in (("resumed", load.resumed), ("had early data accepted", early)):
            if load.requests - (count or 0) > max(MISSED_SHARE * load.requests, MISSED):
                raise RunError(f"only {count} of {load.requests} connections {what}")
    elif load.resumed:
        raise RunError(f"{load.resumed} of {load.requests} handshakes were not full ones")


def of_redis(before: Counters, after: Counters, handshakes: int) -> dict:
    """Returns operations per handshake, and memory per session."""
    return {
        "operations": operations(before, after, handshakes),
        "bytes_per_session": bytes_per_session(before, after),
        "sessions": after.keys - before.keys,
    }


def of_turns(turns: Histogram) -> dict[str, float | None]:
    longest, mean = turns.longest(), turns.mean()
    return {
        "longest_ms": None if longest is None else longest * 1e3,
        "above_bound": turns.above(TURN_BOUND_SECONDS),
        "turns": turns.count,
        "mean_us": None if mean is None else mean * 1e6,
    }


def of_signatures(count: int, seconds: float, cpu: float) -> dict[str, float]:
    if not count or cpu <= 0:
        raise KeylessError(f"{count} signatures in {cpu} s of processor time")
    return {
        "per_cpu_second": count / cpu,
        "cpu_us_per_signature": cpu / count * 1e6,
        "per_second": count / seconds,
    }
