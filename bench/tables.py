"""The tables of contestants and workloads, read and validated before anything starts."""

from __future__ import annotations

import os
import shutil
import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

PROTOCOLS = ("h3", "h2", "h1", "h1-clear")
"""`h1-clear` is HTTP/1.1 without TLS; the others use TLS."""
GENERATORS = ("load", "h2load")
SUBJECT = "pronghorn"
"""The contestant that the bounds apply to."""

MEASURES = {
    "requests": ("cpu_us_per_request", "requests_per_second", "p50_ms", "p99_ms"),
    "transfer": ("cpu_s_per_gib", "gbit_per_second"),
    "handshakes": ("cpu_ms_per_connection", "p50_ms", "p99_ms"),
    "idle": ("rss_kib_per_connection", "pss_kib_per_connection"),
    "memory": ("rss_growth_mib", "rss_bytes_per_request"),
}
"""Measures of each kind of workload; plots show the first."""

BETTER_HIGH = frozenset({"requests_per_second", "gbit_per_second"})
ANSWERS_FROM = ("files", "memory", "handler", "proxy")
PLACEHOLDERS = frozenset(
    {
        "path",
        "port",
        "root",
        "cert",
        "key",
        "work",
        "config",
        "bench",
        "target",
        "protocol",
        "handler",
        "upstream",
    }
)


class TableError(Exception):
    """An invalid table; the message names the place and the allowed values."""


@dataclass(frozen=True)
class Contestant:
    """A server, and how it is started."""

    name: str
    start: tuple[str, ...]
    version: tuple[str, ...]
    version_pattern: str
    """Regular expression for the version within that output; all its matches."""
    protocols: tuple[str, ...]
    answers_from: str
    """`files`: looks at the disk for each request, as a file server; `memory`: a minimal server on a library;
    `handler`: a function of an application is called for each request; `proxy`: the server that it is
    `behind` answers."""
    path: str | None = None
    env: str | None = None
    install: str | None = None
    """The part of `make bench-setup` that builds it."""
    websocket: str | None = None
    """The path that accepts WebSockets and echoes messages, without the leading `/`."""
    config: str | None = None
    """A template in this folder, filled in with the same placeholders."""
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Extra arguments for workloads of one kind."""
    handlers: tuple[str, ...] = ("raw",)
    """The interfaces that the application can use; see `Workload.handler`."""
    behind: str | None = None
    """The contestant that it forwards requests to, in clear text; `upstream` is its port."""
    requires: tuple[str, ...] = ()
    """Paths that must exist beside the program."""
    notes: str = ""

    def program(self, target: Path) -> Path | None:
        """Returns the program's path, or None if it is not installed."""
        given = os.environ.get(self.env) if self.env else None
        if given:
            found = shutil.which(given)
            if found is None:
                raise TableError(f"{self.env}={given}: program not found")
            return Path(found).resolve()
        if self.path is None:
            return None
        path = Path(self.path.format(target=target, bench=Path(__file__).parent))
        return path if path.is_file() else None

    def lacks(self, target: Path) -> str | None:
        """Returns the first missing requirement."""
        for item in self.requires:
            path = Path(item.format(target=target, bench=Path(__file__).parent))
            if not path.exists():
                return f"{path.name} not found: {self.why_absent()}"
        return None

    def why_absent(self) -> str:
        if self.path is None:
            return f"set {self.env} to its path"
        if self.install == "node":
            return "run `make bench-node`"
        if self.install == "debian":
            return f"install the Debian package with {self.path}"
        hint = (
            f"run `make bench-setup` ({self.install})"
            if self.install
            else "run `make build-program`"
        )
        return f"{hint}, or set {self.env} to its path" if self.env else hint


@dataclass(frozen=True)
class Bound:
    """Bound of one of our measures: a ratio to a peer's or to another workload's, or an absolute
    figure.

    Without `at_most` and `at_least` it is only reported.
    """

    measure: str
    at_most: float | None = None
    of: str = SUBJECT
    """The contestant whose measure is bounded."""
    peer: str | None = None
    workload: str | None = None
    at_least: float | None = None
    note: str = ""

    def allows(self, value: float) -> bool:
        return (self.at_most is None or value <= self.at_most) and (
            self.at_least is None or value >= self.at_least
        )

    @property
    def against(self) -> str:
        """Returns the other side of the ratio, or None for an absolute figure."""
        if self.peer and self.workload:
            return f"{self.peer}'s under {self.workload}"
        other = self.peer or self.workload
        return f"{other}'s" if other else ""

    @property
    def words(self) -> str:
        at_most = "" if self.at_most is None else f"≤ {self.at_most:g}"
        at_least = "" if self.at_least is None else f"≥ {self.at_least:,g}"
        return "; ".join(part for part in (at_most, at_least, self.note) if part)


@dataclass(frozen=True)
class Workload:
    """A load and its measures."""

    name: str
    kind: str
    protocol: str
    file: str
    connections: int
    streams: int = 1
    requests: int = 0
    rate: float | None = None
    seconds: float | None = None
    resume: bool = False
    reconnect: bool = False
    """A connection for each request, unless the kind already implies it."""
    websocket: bool = False
    """Messages over a WebSocket on each stream, at the contestant's path instead of `file`."""
    certificate: str = "p256"
    cipher: str | None = None
    groups: str | None = None
    handler: str = "raw"
    """Interface of the application: `raw` for the server's own, or the name of a framework."""
    generators: tuple[str, ...] = GENERATORS
    why: str = ""
    bounds: tuple[Bound, ...] = ()

    @property
    def measures(self) -> tuple[str, ...]:
        return MEASURES[self.kind]


def read_contestants(path: Path) -> dict[str, Contestant]:
    contestants = {}
    for number, entry in enumerate(tomllib.loads(path.read_text()).get("contestant", []), 1):
        where = f"{path.name}, contestant {entry.get('name', number)}"
        contestant = build(Contestant, entry, where)
        for protocol in contestant.protocols:
            one_of(protocol, PROTOCOLS, f"{where}, protocols")
        one_of(contestant.answers_from, ANSWERS_FROM, f"{where}, answers_from")
        for kind in contestant.arguments:
            one_of(kind, MEASURES, f"{where}, arguments")
        if contestant.path is None and contestant.env is None:
            raise TableError(f"{where}: needs `path` or `env`")
        for part in (*contestant.start, *contestant.version):
            unknown = {
                name for _, name, _, _ in string.Formatter().parse(part) if name
            } - PLACEHOLDERS
            if unknown:
                raise TableError(
                    f"{where}: unknown placeholder {{{unknown.pop()}}}; known: {sorted(PLACEHOLDERS)}"
                )
        add(contestants, contestant, where)
    for contestant in contestants.values():
        if contestant.behind is not None:
            one_of(
                contestant.behind, contestants, f"{path.name}, contestant {contestant.name}, behind"
            )
    return contestants


def read_workloads(path: Path, contestants: Mapping[str, Contestant]) -> dict[str, Workload]:
    workloads: dict[str, Workload] = {}
    for number, entry in enumerate(tomllib.loads(path.read_text()).get("workload", []), 1):
        where = f"{path.name}, workload {entry.get('name', number)}"
        bounds = tuple(build(Bound, bound, f"{where}, bounds") for bound in entry.pop("bounds", []))
        workload = build(Workload, {**entry, "bounds": bounds}, where)
        one_of(workload.kind, MEASURES, f"{where}, kind")
        one_of(workload.protocol, PROTOCOLS, f"{where}, protocol")
        one_of(workload.certificate, ("p256", "rsa2048"), f"{where}, certificate")
        for generator in workload.generators:
            one_of(generator, GENERATORS, f"{where}, generators")
        if "load" in workload.generators and (workload.cipher or workload.groups):
            raise TableError(
                f"{where}: `pronghorn load` cannot choose a cipher or group; leave it out of `generators`"
            )
        if (workload.rate is None) != (workload.seconds is None):
            raise TableError(f"{where}: `rate` and `seconds` belong together")
        if workload.rate is None and workload.requests <= 0:
            raise TableError(f"{where}: needs `requests`, or `rate` and `seconds`")
        if workload.generators != ("load",) and (
            workload.rate is not None or workload.resume or workload.reconnect
        ):
            raise TableError(
                f'{where}: rates, idle and resumed connections are for generators = ["load"]'
            )
        if workload.websocket and workload.generators != ("load",):
            raise TableError(f'{where}: WebSockets are for generators = ["load"]')
        for bound in bounds:
            one_of(bound.measure, workload.measures, f"{where}, bounds, measure")
            if bound.of != SUBJECT:
                one_of(bound.of, contestants, f"{where}, bounds, of")
            if bound.peer is not None:
                one_of(bound.peer, contestants, f"{where}, bounds, peer")
        add(workloads, workload, where)
    for workload in workloads.values():
        for bound in workload.bounds:
            if bound.workload is not None:
                where = f"{path.name}, workload {workload.name}, bounds, workload"
                one_of(bound.workload, workloads, where)
                one_of(bound.measure, workloads[bound.workload].measures, where)
    return workloads


def build(kind: type, entry: Mapping, where: str):
    known = {item.name for item in fields(kind)}
    for key in entry:
        one_of(key, known, where)
    try:
        return kind(**{key: frozen(value) for key, value in entry.items()})
    except TypeError as error:
        raise TableError(f"{where}: {error}") from None


def frozen(value):
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        return {key: frozen(inner) for key, inner in value.items()}
    return value


def one_of(value: str, allowed, where: str) -> None:
    if value not in allowed:
        raise TableError(f"{where}: invalid '{value}'; allowed: {', '.join(sorted(allowed))}")


def add(table: dict, item, where: str) -> None:
    if item.name in table:
        raise TableError(f"{where}: duplicate name")
    table[item.name] = item


def select(table: Mapping[str, object], names: str | None, what: str) -> list:
    """Returns the entries that a list such as `a,b*` selects, in the table's order."""
    if not names:
        return list(table.values())
    chosen = set()
    for pattern in names.split(","):
        matched = [
            name
            for name in table
            if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))
        ]
        if not matched:
            raise TableError(f"unknown {what} '{pattern}'; known: {', '.join(table)}")
        chosen.update(matched)
    return [item for name, item in table.items() if name in chosen]
