"""`docs/security.md`, written from the attacks and from the figures of the last run that was asked to note them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from .attack import ATTACKS, MIB, Attack, Elsewhere, Outcome
from .elsewhere import ELSEWHERE, UNCOVERED
from .gateway import GATEWAY_FAMILIES, ON_GATEWAY

FIGURES = Path(__file__).with_name("figures.json")
FAMILIES = ["QUIC", "TLS", "HTTP/3", "HTTP/2", "HTTP/1.1"]

HEAD = """\
<!-- Generated from tests/attacks: UPDATE_DOCS=1 .venv/bin/python -m pytest -c tests/pytest.ini -k attacks -->

# Security

## What is defended, and against whom

The server stands on the open internet. Whoever reaches its port may send it any bytes over UDP and TCP, from
addresses of their own or forged ones, on as many connections as they like, and may stop at any point. They do
not control the network between an honest client and the server, and have neither the certificate's key nor
the secret of the state folder.

What they must not achieve: that the server panics or stops; that it holds memory for them without a limit
that has a name ([limits.md](limits.md)); that a packet or frame costs much more than a useful one; that it
sends much to somebody who did not ask; that a request is answered twice from a copy of its packets, is taken
for another host's, or is read as two; that a file outside of the served folder is given out. Honest clients
are served meanwhile.

Who may write into the served folder, the state folder or the key file is trusted, as is the machine.

## Reporting

Write to the maintainers in private before you publish: by a private vulnerability report in the repository's
Security tab. Say which version it is and what to send; a packet capture or a script helps. The panic of a
server, memory without a limit, and an answer that is given to the wrong client are always taken as
vulnerabilities.

## Attacks

Each is a test of this name in `tests/e2e/test_attacks.py` that `make test-e2e` carries out against the
program with one worker, so that attacker and honest client share it. The honest client asks over HTTP/3,
HTTP/2 and HTTP/1.1 all the while and once more while the attacker's connections are still open; each answer
has to be right. The bounds are asserted: how much more the server may hold at its peak than before the
attack, with what the kernel holds for it where the row says so, and the processor time that it may take for
all that the attack sends, with what it does for the honest client. They are wide, for slow machines. What was
measured stands before the bound{note}.

A limit in `code` is one of [limits.md](limits.md) and has a counter.
"""

TABLE = """
### {family}

| attack | source | what is sent | what stops it | bytes sent | memory, MiB | CPU, s |
|---|---|---|---|---|---|---|
"""

MORE = """
## Attacks that other tests show

| attack | source | what is sent | what stops it | test |
|---|---|---|---|---|
"""

GATEWAY = """
## Attacks on the gateway

Requests that would get past a route of `pronghorn run`, pass for another client's, or exhaust what others need. Each is
a test that `make test-e2e` runs, over HTTP/1.1, HTTP/2 and HTTP/3 wherever a protocol can express it. What operators
may rely on: [gateway/guarantees.md](gateway/guarantees.md).
"""

GATEWAY_TABLE = """
### {family}

| attack | source | what is sent | what stops it | test |
|---|---|---|---|---|
"""

NOT_COVERED = """
## What is not covered

| what | known from | why |
|---|---|---|
"""


def figures() -> dict:
    return json.loads(FIGURES.read_text()) if FIGURES.is_file() else {}


def note(attack: Attack, outcome: Outcome, build: str) -> None:
    """Keeps what was measured, for the page."""
    known = figures()
    known[attack.name] = {
        "build": build,
        "bytes": outcome.attack_bytes,
        "memory_mib": round(outcome.memory / MIB, 1),
        "cpu_seconds": round(outcome.cpu_seconds, 1),
    }
    names = {each.name for each in ATTACKS}
    kept = {name: known[name] for name in sorted(known) if name in names}
    FIGURES.write_text(json.dumps(kept, indent=2) + "\n")


def document() -> str:
    """The page."""
    known = figures()
    builds = " and ".join(sorted({each["build"] for each in known.values()}))
    page = HEAD.format(note=f" (build: {builds})" if builds else "")
    for family in FAMILIES:
        rows = [row(each, known.get(each.name)) for each in ATTACKS if each.family == family]
        if rows:
            page += TABLE.format(family=family) + "".join(rows)
    page += MORE + "".join(map(other_row, in_order(ELSEWHERE)))
    page += GATEWAY
    for family in GATEWAY_FAMILIES:
        page += GATEWAY_TABLE.format(family=family)
        page += "".join(other_row(each) for each in ON_GATEWAY if each.family == family)
    page += NOT_COVERED + "".join(f"| {each.what} | {each.source} | {each.why} |\n" for each in UNCOVERED)
    return page


def in_order(attacks: Iterable[Elsewhere]) -> list[Elsewhere]:
    return sorted(attacks, key=lambda each: FAMILIES.index(each.family))


def row(attack: Attack, figure: dict | None) -> str:
    size, memory, cpu = (
        ("", "", "") if figure is None else (readable(figure["bytes"]), figure["memory_mib"], figure["cpu_seconds"])
    )
    limit = attack.limit if not attack.flags else f"{attack.limit} (here: {' '.join(attack.flags[1::2])})"
    return (
        f"| {attack.name} | {attack.source} | {attack.what} | {limit} | {size} "
        f"| {memory} ≤ {attack.memory_mib} | {cpu} ≤ {attack.cpu_seconds:g} |\n"
    )


def other_row(attack: Elsewhere) -> str:
    tests = ", ".join(f"`{test.rpartition('/')[2]}`" for test in attack.tests)
    # A bar would end the cell, in code too.
    what = attack.what.replace("|", "\\|")
    return f"| {attack.name} | {attack.source} | {what} | {attack.limit} | {tests} |\n"


def readable(size: int) -> str:
    return f"{size / MIB:.1f} MiB" if size >= MIB else f"{size / 1024:.0f} KiB"
