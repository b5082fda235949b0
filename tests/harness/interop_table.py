"""`docs/interop.md`, written from the tests that there are: their names say which peer does what."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable

from .server import REPOSITORY

FILES = [
    "test_interop.py",
    "test_interop_features.py",
    "test_interop_chromium.py",
    "test_interop_firefox.py",
    "test_early_data.py",
    "test_browser.py",
    "test_webtransport.py",
]
"""With tests named `test_CASE[CLIENT-to-SERVER]`, or `test_CLIENT_CASE` against our server."""

CLIENTS = {
    "aioquic": "aioquic",
    "quic_go": "quic-go",
    "curl": "curl",
    "h3_crate": "h3 crate",
    "chromium": "Chromium",
    "firefox": "Firefox",
}
"""Those of others, as in the names of tests and as they are called."""
SERVERS = ["quic-go", "aioquic"]
OURS = "pronghorn"

LIBRARIES = "test_ecosystem.py"
"""With tests named `test_client_of_others[CLIENT-PROTOCOL-SCENARIO-SERVER]`."""

LIBRARY_NAMES = {
    "httpx": "HTTPX",
    "niquests": "Niquests",
    "aiohttp": "aiohttp",
    "net-http": "Go net/http",
    "undici": "undici",
    "got": "Got",
    "okhttp": "OkHttp",
    "jetty": "Jetty",
    "apache": "Apache HttpClient 5",
    "jdk": "java.net.http",
}
SCENARIO_NAMES = {
    "small": "two small responses",
    "download": "download of 50 MiB",
    "upload": "upload of known length",
    "stream": "upload of unknown length",
    "refused": "upload that is refused at once",
    "cancel": "four cancelled downloads beside three others",
    "shutdown": "graceful shutdown in the middle of a download",
    "idle": "a request after 31 idle seconds",
}

ELSEWHERE = {
    "test_page_loads_over_ipv6": ("Chromium", OURS, "transfer_over_ipv6", ""),
    "test_browser_goes_from_h2_to_h3_by_alt_svc": ("Chromium", OURS, "goes_from_h2_to_h3_by_alt_svc", ""),
    "test_page_loads_whole_over_the_protocol_asked_for[h3]": ("Chromium", OURS, "transfer", ""),
}
"""Tests that are named after something else."""

HEAD = """\
<!-- Generated from the names of tests: UPDATE_DOCS=1 .venv/bin/python -m pytest -c tests/pytest.ini -k interop_md -->

# Interoperation

QUIC stacks that nobody of this project wrote, against ours in both roles. `make test-e2e` runs each case and fails when
one does not end as it should: with every byte that was asked for, and with what the counters of the server or the words
of the peer have to say. Loss, new ports and the like are made by a proxy between the two. An empty cell has no test,
mostly since the peer cannot be told to do that: curl has no switch for key updates and migration, and in this build
none for early data.

"""

LIBRARIES_HEAD = """

## HTTP libraries

Clients as applications use them, against `pronghorn run` and, for comparison, nginx. A cell names the versions of HTTP
that are tested. It is empty where the client cannot do it, or fails with nginx as well: `OWN_FAULTS` in
`tests/e2e/test_ecosystem.py` says why, and `KNOWN` has what fails with ours alone. `make test-long` runs all of it,
`make test-e2e` a part that needs no JDK.

"""


def collected() -> list[str]:
    """The tests as pytest lists them."""
    paths = [str(REPOSITORY / "tests" / "e2e" / name) for name in [*FILES, LIBRARIES]]
    settings = ["-c", str(REPOSITORY / "tests" / "pytest.ini"), "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, "--collect-only", "-q", *paths],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]


def document(tests: Iterable[str]) -> str:
    """The page."""
    rows: dict[str, set[tuple[str, str]]] = {}
    variants: dict[str, list[str]] = {}
    libraries: dict[tuple[str, str], list[str]] = {}
    for test in tests:
        if cell := re.fullmatch(r"test_client_of_others\[(\S+)-(1\.1|2)-(\w+)-(\w+)\]", test):
            client, protocol, scenario, server = cell.groups()
            if server == OURS:
                libraries.setdefault((scenario, client), []).append(protocol)
            continue
        if (found := peers_and_case(test)) is None:
            continue
        client, server, case, variant = found
        rows.setdefault(case, set()).add((client, server))
        if variant and variant not in variants.setdefault(case, []):
            variants[case].append(variant)
    pairs = [*((client, OURS) for client in CLIENTS.values()), *((OURS, server) for server in SERVERS)]
    names = [f"{client} to us" if server == OURS else f"us to {server}" for client, server in pairs]
    lines = [f"| case | {' | '.join(names)} |", "|---" * (len(pairs) + 1) + "|"]
    for case, held in rows.items():
        words = case.replace("_", " ") + (f" ({', '.join(variants[case])})" if case in variants else "")
        lines.append(f"| {words} | {' | '.join('yes' if pair in held else '' for pair in pairs)} |")
    return HEAD + "\n".join(lines) + LIBRARIES_HEAD + library_table(libraries) + "\n"


def library_table(cells: dict[tuple[str, str], list[str]]) -> str:
    lines = [f"| scenario | {' | '.join(LIBRARY_NAMES.values())} |", "|---" * (len(LIBRARY_NAMES) + 1) + "|"]
    for scenario, words in SCENARIO_NAMES.items():
        versions = (", ".join(cells.get((scenario, client), [])) for client in LIBRARY_NAMES)
        lines.append(f"| {words} | {' | '.join(versions)} |")
    return "\n".join(lines)


def peers_and_case(test: str) -> tuple[str, str, str, str] | None:
    """Client, server, case and variant; None for a test without a peer, or between ourselves."""
    if test in ELSEWHERE:
        return ELSEWHERE[test]
    name, parameter = re.fullmatch(r"test_(\w+)(?:\[(.*)\])?", test).groups(default="")
    if pair := re.fullmatch(r"(\S+)-to-([a-z-]+)(?:-([A-Z]\S+))?", parameter):
        client, server = (each.replace("h3-crate", "h3 crate") for each in pair.groups()[:2])
        return (client, server, name, pair[3] or "") if client != server else None
    for prefix, client in CLIENTS.items():
        if name.startswith(f"{prefix}_"):
            return client, OURS, name.removeprefix(f"{prefix}_"), parameter
    return None
