"""The report of the suite in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from ..report import caveats, machine, rows, section
from ..summary import Cell, Spread, ratio, si, spreads
from . import capacity
from .arrangements import CERTIFICATES, HANDSHAKES, TURNS, Arrangement
from .capacity import Assumptions, Costs, needs, nodes_for_one_core
from .measure import FULL_AND_RESUMED, SIGNING, TURN_BOUND_SECONDS

Table = Mapping[Cell, Mapping[str, Spread]]
TURN_LOADS = ("h3-turns", "h2-turns")


def markdown(result: Mapping) -> str:
    runs = result["runs"]
    table = spreads(runs)
    parts = [
        f"# {result['name']}",
        f"`{result['command']}`, at {result['commit'] or 'an unknown commit'}, "
        f"{result['started']}, seed {result['seed']}, {result['rounds']} rounds.",
        *caveats({**result, "runs": [run for run in runs if run["error"] is None]}),
        *failed_note(runs),
        "Figures are medians over the rounds, in brackets the lowest and the highest. A ratio is "
        "that of the medians, in brackets the range of the ratios within one round.",
        section("Processor time per handshake", handshakes(table, result)),
        section("Redis", redis(runs)),
        section("Signatures of one signer core", signatures(table, result)),
        section("Turns of the worker", turns(table, result)),
        section("For 10, 100 and 1,000 servers", arithmetic(table, runs)),
        section("Failed runs", failures(runs)),
        section(
            "Programs", "\n".join(f"- {name}: {it}" for name, it in result["programs"].items())
        ),
        section("Machine", machine(result["machine"])),
    ]
    return "\n\n".join(parts) + "\n"


def cell(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    return f"{si(spread.median)} [{si(spread.low)}-{si(spread.high)}]"


def relative(table: Table, workload: str, one: Arrangement, base: str, measure: str) -> str:
    ours = table.get((workload, "load", one.name), {}).get(measure)
    theirs = table.get((workload, "load", base), {}).get(measure)
    if ours is None or theirs is None or one.name == base:
        return ""
    found = ratio(ours, theirs)
    return "" if found is None else f"{si(found.of_medians)} [{si(found.low)}-{si(found.high)}]"


def handshakes(table: Table, result: Mapping) -> str:
    lines = []
    for workload in FULL_AND_RESUMED:
        for one in HANDSHAKES:
            own = table.get((workload.name, "load", one.name))
            if own is not None:
                measures = ("cpu_ms_per_handshake", "redis_us_per_handshake")
                measures += ("signer_us_per_handshake", "p50_ms", "p99_ms")
                cells = [cell(own.get(measure)) for measure in measures]
                cells.insert(1, relative(table, workload.name, one, one.base, measures[0]))
                lines.append([workload.name, one.name, one.why, *cells])
    header = ["load", "gateway", "what it has", "gateway CPU, ms", "by that of the key in a file"]
    header += ["Redis CPU, µs", "signer CPU, µs", "p50, ms", "p99, ms"]
    if not lines:
        return "Not measured."
    return (
        f"`{result['commands']['handshakes']}`: a connection for each request, "
        f"{result['handshakes']:,} a run. `full`: full handshakes. `early-data`: resumed, with the "
        "request in early data; it begins with a full handshake for each of its connections, which "
        "counts. The gateway's processor has nothing else to do; Redis, the signer "
        "and the generator share another.\n\n" + rows(header, lines)
    )


def of_sessions(runs: Sequence[Mapping]) -> dict[str, list[Mapping]]:
    """Returns what runs with Redis counted, by workload."""
    found: dict[str, list[Mapping]] = {}
    for run in runs:
        if run["error"] is None and run.get("redis"):
            found.setdefault(run["workload"], []).append(run["redis"])
    return found


def operations(counted: Sequence[Mapping]) -> dict[str, float]:
    """Returns the median number of calls of each command per handshake."""
    names = sorted({name for one in counted for name in one["operations"]})
    return {name: median(one["operations"].get(name, 0.0) for one in counted) for name in names}


def redis(runs: Sequence[Mapping]) -> str:
    lines = []
    for workload, counted in of_sessions(runs).items():
        each = operations(counted)
        sizes = [one["bytes_per_session"] for one in counted if one["bytes_per_session"]]
        calls = ", ".join(f"{name.upper()} {si(value)}" for name, value in each.items())
        size = si(median(sizes)) if sizes else "-"
        lines.append([workload, si(sum(each.values())), calls, size])
    if not lines:
        return "Not measured."
    header = ["load", "operations per handshake", "of these", "bytes per session"]
    return (
        "Calls by `INFO commandstats`, before and after. Bytes: `used_memory` by `INFO memory` "
        "divided by the new keys (`DBSIZE`), so with Redis's own tables. The gateway also sends an "
        "INFO each second, which is counted here.\n\n" + rows(header, lines)
    )


def signatures(table: Table, result: Mapping) -> str:
    lines = []
    for kind in CERTIFICATES:
        own = table.get((SIGNING, "load", kind))
        if own is not None:
            measures = ("per_cpu_second", "cpu_us_per_signature", "per_second")
            lines.append([kind, *(cell(own.get(measure)) for measure in measures)])
    if not lines:
        return "Not measured."
    header = ["key", "signatures per second of CPU", "CPU, µs per signature", "signatures/s"]
    return (
        f"`{result['commands']['signatures']}` on one processor with `threads = 1`. A client on "
        f"another keeps 256 requests open for {result['seconds']:g} s (RSA: PSS; both with "
        "SHA-256). The CPU is that of the whole signer, its TLS included. OpenSSL verified the "
        "first signature.\n\n" + rows(header, lines)
    )


def turns(table: Table, result: Mapping) -> str:
    lines = []
    for workload in TURN_LOADS:
        for one in TURNS:
            own = table.get((workload, "load", one.name))
            if own is not None:
                measures = ("longest_ms", "above_bound", "turns", "mean_us", "p50_ms", "p99_ms")
                lines.append(
                    [workload, one.name, one.why, *(cell(own.get(measure)) for measure in measures)]
                )
    if not lines:
        return "Not measured."
    header = ["load", "gateway", "what it has", "longest turn at most, ms"]
    header += [f"turns above {TURN_BOUND_SECONDS * 1000:g} ms", "turns", "mean turn, µs"]
    header += ["handshake p50, ms", "handshake p99, ms"]
    return (
        f"`{result['commands']['turns']}`: full handshakes. The longest turn is the bound of the "
        "highest used bucket of `pronghorn_worker_turn_seconds`. Turns are timed by the clock, so "
        "other work on the processor makes them longer.\n\n" + rows(header, lines)
    )


def costs(table: Table, runs: Sequence[Mapping]) -> Costs | None:
    """Returns the costs of a handshake over HTTP/3; None unless all were measured."""
    counted = of_sessions(runs)
    full, early = counted.get("h3-full"), counted.get("h3-early-data")
    rates = {
        kind: table[(SIGNING, "load", kind)]["per_cpu_second"].median
        for kind in CERTIFICATES
        if (SIGNING, "load", kind) in table
    }
    sizes = [one["bytes_per_session"] for one in full or () if one["bytes_per_session"]]
    if not full or not early or not sizes or len(rates) < len(CERTIFICATES):
        return None
    of_full, of_early = operations(full), operations(early)
    stored, removed = of_early.get("set", 0.0), of_early.get("getdel", 0.0)
    return Costs(
        sum(of_full.values()),
        sum(of_early.values()),
        of_full.get("set", 0.0),
        stored - removed,
        median(sizes),
        rates,
    )


def arithmetic(table: Table, runs: Sequence[Mapping], assumed: Assumptions | None = None) -> str:
    assumed = assumed or Assumptions()
    found = costs(table, runs)
    if found is None:
        return "Needs the operations of Redis over HTTP/3 and the signatures, which were not all measured."
    lines = []
    for nodes in capacity.NODES:
        of = needs(nodes, found, assumed)
        signers = [si(of.signer_cores[kind]) for kind in CERTIFICATES]
        lines.append(
            [
                f"{nodes:,}",
                si(of.handshakes_per_second),
                si(of.redis_operations_per_second),
                si(of.redis_cores),
                si(of.redis_gib),
                *signers,
            ]
        )
    header = ["servers", "handshakes/s", "Redis operations/s", "Redis cores", "Redis GiB"]
    header += [f"signer cores, {kind}" for kind in CERTIFICATES]
    limits = sorted(nodes_for_one_core(found, assumed).items(), key=lambda limit: limit[1])
    first = "; ".join(f"{name}: {si(nodes)}" for name, nodes in limits)
    return (
        f"If each server has {assumed.handshakes_per_second:g} new connections a second, "
        f"{assumed.resumed_share:.0%} of them resumed, and sessions are kept for "
        f"{assumed.lifetime_hours:g} h. One core of Redis does "
        f"{capacity.REDIS_OPERATIONS_PER_SECOND:,} pipelined operations a second (measured apart "
        "from this run). BENCHMARKING.md has the formulas.\n\n"
        + rows(header, lines)
        + f"\n\nServers that fill one core: {first}."
    )


def failed_note(runs: Sequence[Mapping]) -> list[str]:
    failed = sum(run["error"] is not None for run in runs)
    if not failed:
        return []
    return [f"**{failed} of {len(runs)} runs failed**; the end of the report has the reasons."]


def failures(runs: Sequence[Mapping]) -> str:
    failed = [run for run in runs if run["error"] is not None]
    lines = [
        f"- {run['workload']}, {run['contestant']}, round {run['round']}: {run['error']}"
        for run in failed
    ]
    return "\n".join(lines) or "None."
