"""The report in Markdown: contestants, machine, results, and which bounds hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .summary import Cell, Spread, Verdict, overlap, ratio, si, spreads, verdict
from .tables import SUBJECT, Workload

TITLES = {
    "cpu_us_per_request": "server CPU, µs per request (= ms per 1,000)",
    "requests_per_second": "requests/s",
    "p50_ms": "latency p50, ms",
    "p99_ms": "latency p99, ms",
    "cpu_s_per_gib": "server CPU, s per GiB",
    "gbit_per_second": "Gbit/s",
    "cpu_ms_per_connection": "server CPU, ms per connection",
    "rss_kib_per_connection": "RSS, KiB per connection",
    "pss_kib_per_connection": "PSS, KiB per connection",
    "rss_growth_mib": "RSS grew by, MiB",
    "rss_bytes_per_request": "RSS grew by, bytes per request",
}


def markdown(result: Mapping, workloads: Sequence[Workload], plots: Sequence[str]) -> str:
    table = spreads(result["runs"])
    parts = [
        f"# {result['name']}",
        f"`{result['command']}`, at {result['commit'] or 'an unknown commit'}, {result['started']}, "
        f"seed {result['seed']}, {result['rounds']} rounds.",
        *caveats(result),
        section("Bounds", bounds(table, workloads, result)),
        *(section(workload.name, figures(table, workload, result)) for workload in workloads),
        section("Do the generators agree?", agreement(table, result["runs"], workloads)),
        section("Who was measured", contestants(result)),
        section("Machine", machine(result["machine"])),
    ]
    if plots:
        parts.insert(3 + len(caveats(result)), "\n".join(f"![{name}]({name})" for name in plots))
    return "\n\n".join(parts) + "\n"


def section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}"


def rows(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([row(header), "|" + "---|" * len(header), *(row(line) for line in lines)])


def caveats(result: Mapping) -> list[str]:
    """Writes the notes that a reader needs before any number."""
    runs = [run for run in result["runs"] if run["error"] is None]
    loud = [run for run in runs if not run["quiet"]]
    notes = []
    if loud:
        worst = max(run["foreign_cores"] + run["stolen_cores"] for run in loud)
        notes.append(
            f"**The machine was not quiet**: in {len(loud)} of {len(runs)} runs other processes used over 0.1 of a "
            f"processor, up to {worst:.2f}, despite repeats. Rates and latencies of those runs are unreliable, and "
            "their CPU times include cache misses caused by other processes."
        )
    failed = [run for run in result["runs"] if run["error"] is not None]
    if failed:
        notes.append(f"**{len(failed)} runs failed**; their workloads list the reasons.")
    if result["rounds"] < 5:
        notes.append("Fewer than 5 rounds: a first look, not a result.")
    if result["scale"] != 1:
        notes.append(
            f"With {result['scale']:g} of the table's requests: connections and warm-up weigh too much."
        )
    return notes


def bounds(
    table: Mapping[Cell, Mapping[str, Spread]], workloads: Sequence[Workload], result: Mapping
) -> str:
    lines = []
    for found in verdicts(table, workloads, result["generators"]):
        bound = found.bound
        value = (
            "" if found.value is None else f"{si(found.value)} [{si(found.low)}-{si(found.high)}]"
        )
        whose = "" if bound.of == SUBJECT else f" of {bound.of}"
        measure = TITLES[bound.measure] + whose + (f" by {bound.against}" if bound.against else "")
        lines.append([found.workload, found.generator, measure, bound.words, value, found.word])
    if not lines:
        return "No workload has a bound."
    note = (
        "\n\nThe ratio of the medians, and in brackets the smallest and largest within one round."
    )
    return rows(["workload", "generator", "what", "bound", "value", "verdict"], lines) + note


def verdicts(
    table: Mapping[Cell, Mapping[str, Spread]],
    workloads: Sequence[Workload],
    generators: Sequence[str],
) -> list[Verdict]:
    return [
        verdict(workload.name, generator, bound, table)
        for workload in workloads
        for bound in workload.bounds
        for generator in workload.generators
        if generator in generators
    ]


def figures(table: Mapping[Cell, Mapping[str, Spread]], workload: Workload, result: Mapping) -> str:
    parts = [load_in_words(workload)]
    for generator in workload.generators:
        if generator not in result["generators"]:
            parts.append(f"Not measured by {generator}: not installed or not selected.")
            continue
        names = [
            name for name in result["contestants"] if (workload.name, generator, name) in table
        ]
        lines = [line(table, workload, generator, name) for name in names]
        header = [
            f"by {generator}",
            *(TITLES[measure] for measure in workload.measures),
            f"{SUBJECT} by it",
        ]
        if lines:
            parts.append(rows(header, lines))
    failures = {
        (run["contestant"], run["generator"], run["error"])
        for run in result["runs"]
        if run["workload"] == workload.name and run["error"] is not None
    }
    parts += [f"- {name} by {generator}: {why}" for name, generator, why in sorted(failures)]
    return "\n\n".join(parts)


def load_in_words(workload: Workload) -> str:
    one_each = workload.kind == "handshakes" or workload.reconnect
    size = "connection for each request" if one_each else f"{workload.streams} streams each"
    amount = (
        f"{workload.requests:,} requests"
        if workload.rate is None
        else f"{workload.rate:g} requests/s"
    )
    what = "a WebSocket on each stream" if workload.websocket else f"`{workload.file}`"
    words = f"{workload.protocol}, {what}, {workload.connections:,} connections, {size}, {amount}"
    extra = [
        None if workload.handler == "raw" else f"a handler for {workload.handler}",
        workload.cipher,
        workload.groups,
        workload.certificate,
        "resumed" if workload.resume else None,
    ]
    words += "".join(f", {item}" for item in extra if item)
    return f"{words}. {workload.why[:1].upper()}{workload.why[1:]}.".replace(". .", ".")


def line(
    table: Mapping[Cell, Mapping[str, Spread]], workload: Workload, generator: str, name: str
) -> list[str]:
    own = table[(workload.name, generator, name)]
    cells = [name]
    for measure in workload.measures:
        spread = own.get(measure)
        cells.append(
            "-" if spread is None else f"{si(spread.median)} [{si(spread.low)}-{si(spread.high)}]"
        )
    ours = table.get((workload.name, generator, SUBJECT), {}).get(workload.measures[0])
    theirs = own.get(workload.measures[0])
    between = (
        ratio(ours, theirs) if ours is not None and theirs is not None and name != SUBJECT else None
    )
    cells.append(
        ""
        if between is None
        else f"{si(between.of_medians)} [{si(between.low)}-{si(between.high)}]"
    )
    return cells


def agreement(
    table: Mapping[Cell, Mapping[str, Spread]],
    runs: Sequence[Mapping],
    workloads: Sequence[Workload],
) -> str:
    """Compares two generators: requests and bytes must be equal, the server's CPU within the spread
    of the rounds.
    """
    lines = []
    for workload in workloads:
        measure = workload.measures[0]
        names = dict.fromkeys(name for load, _, name in table if load == workload.name)
        for name in names:
            one, other = (
                table.get((workload.name, generator, name), {}).get(measure)
                for generator in ("load", "h2load")
            )
            if one is None or other is None:
                continue
            counts = [
                {
                    (run["load"]["requests"], run["load"]["body_bytes"])
                    for run in runs
                    if run["error"] is None
                    and (run["workload"], run["generator"], run["contestant"])
                    == (workload.name, generator, name)
                }
                for generator in ("load", "h2load")
            ]
            same = (
                "yes"
                if counts[0] == counts[1] and len(counts[0]) == 1
                else f"no: {counts[0]} and {counts[1]}"
            )
            lines.append(
                [
                    workload.name,
                    name,
                    same,
                    f"{si(one.median)} [{si(one.low)}-{si(one.high)}]",
                    f"{si(other.median)} [{si(other.low)}-{si(other.high)}]",
                    si(one.median / other.median) if other.median else "-",
                    "yes" if overlap(one, other) else "no",
                ]
            )
    if not lines:
        return "Only one generator was installed, or no load was generated by both."
    header = [
        "workload",
        "contestant",
        "same requests and bytes",
        "CPU with load",
        "CPU with h2load",
        "ratio",
        "spreads overlap",
    ]
    return rows(header, lines)


def contestants(result: Mapping) -> str:
    lines = []
    for name, entry in result["contestants"].items():
        fields = "; ".join(
            f"{protocol}: {', '.join(sent)}" for protocol, sent in entry["fields"].items()
        )
        lines.append([name, entry["version"], entry["answers_from"], entry["notes"], fields])
    absent = [f"- {name} skipped: {why}" for name, why in result["absent"].items()]
    generators = [f"- {name}: {version}" for name, version in result["generators"].items()]
    text = rows(["contestant", "version", "answers from", "notes", "response fields"], lines)
    return "\n\n".join(
        [text, *(["\n".join(absent)] if absent else []), "Generators:\n\n" + "\n".join(generators)]
    )


def machine(facts: Mapping) -> str:
    return "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in facts.items())
