"""`docs/security.md`, generated from the attacks and from the figures of the last run that recorded
them.
"""

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

## Threat model

The server is made for the open internet. An attacker can send any bytes to its port over UDP and
TCP, from real or forged addresses, on any number of connections, and can stop at any point. The
attacker does not control the network between an honest client and the server, and has neither the
certificate's key nor the secret in the state folder.

The attacker must not be able to:

- make the server panic or stop
- make the server use memory without a named limit ([limits.md](limits.md))
- send a packet or frame that costs the server much more than a useful one
- make the server send much data to a host that did not ask for it (amplification)
- have a request answered twice from a copy of its packets, taken for a request to another host, or
  read as two requests
- read a file outside of the served folder

Honest clients are served during an attack.

Users who may write to the served folder, the state folder or the key file are trusted, and so is
the machine.

## Reporting

Report a vulnerability in private: [SECURITY.md](../SECURITY.md) says how.

## Attacks

Each attack is a test of this name in `tests/e2e/test_attacks.py`. `make test-e2e` runs it against
the program with one worker, so that the attacker and an honest client share the worker. The honest
client sends requests over HTTP/3, HTTP/2 and HTTP/1.1 during the attack, and once more while the
attacker's connections are still open. Every response must be correct.

The columns give the measured value{note} and, after `≤`, the bound that the test asserts:

- **memory**: how much more memory the server uses at its peak than before the attack. Memory of the
  kernel is included where the row says so.
- **CPU**: the processor time for everything that the attack sends, including the time for the
  honest client.

The bounds are wide, to allow for slow machines.

A limit in `code` is described in [limits.md](limits.md) and has a counter.
"""

TABLE = """
### {family}

| attack | source | what is sent | what stops it | bytes sent | memory, MiB | CPU, s |
|---|---|---|---|---|---|---|
"""

MORE = """
## Attacks in other tests

| attack | source | what is sent | what stops it | test |
|---|---|---|---|---|
"""

GATEWAY = """
## Attacks on the gateway

Requests that would bypass a route of `pronghorn run`, pass for another client's requests, or
exhaust resources that others need. Each attack is a test that `make test-e2e` runs over HTTP/1.1,
HTTP/2 and HTTP/3 wherever the protocol can express it. What operators can rely on:
[gateway/guarantees.md](gateway/guarantees.md).
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
    """Stores the measured figures for the page."""
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
    """Renders the page."""
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
    page += NOT_COVERED + "".join(
        f"| {each.what} | {each.source} | {each.why} |\n" for each in UNCOVERED
    )
    return page


def in_order(attacks: Iterable[Elsewhere]) -> list[Elsewhere]:
    return sorted(attacks, key=lambda each: FAMILIES.index(each.family))


def row(attack: Attack, figure: dict | None) -> str:
    size, memory, cpu = (
        ("", "", "")
        if figure is None
        else (readable(figure["bytes"]), figure["memory_mib"], figure["cpu_seconds"])
    )
    limit = (
        attack.limit
        if not attack.flags
        else f"{attack.limit} (here: {' '.join(attack.flags[1::2])})"
    )
    return (
        f"| {attack.name} | {attack.source} | {attack.what} | {limit} | {size} "
        f"| {memory} ≤ {attack.memory_mib} | {cpu} ≤ {attack.cpu_seconds:g} |\n"
    )


def other_row(attack: Elsewhere) -> str:
    tests = ", ".join(f"`{test.rpartition('/')[2]}`" for test in attack.tests)
    # A bar would end the table cell, even in code.
    what = attack.what.replace("|", "\\|")
    return f"| {attack.name} | {attack.source} | {what} | {attack.limit} | {tests} |\n"


def readable(size: int) -> str:
    return f"{size / MIB:.1f} MiB" if size >= MIB else f"{size / 1024:.0f} KiB"
