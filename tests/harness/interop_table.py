"""`docs/interop.md`, generated from the names of the tests, which contain peer and case."""

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
"""Files with tests named `test_CASE[CLIENT-to-SERVER]`, or `test_CLIENT_CASE` against our server."""

CLIENTS = {
    "aioquic": "aioquic",
    "quic_go": "quic-go",
    "curl": "curl",
    "h3_crate": "h3 crate",
    "chromium": "Chromium",
    "firefox": "Firefox",
}
"""Independent clients: prefix in the names of tests, and display name."""
SERVERS = ["quic-go", "aioquic"]
OURS = "pronghorn"

LIBRARIES = "test_ecosystem.py"
"""The file with tests named `test_client_of_others[CLIENT-PROTOCOL-SCENARIO-SERVER]`."""

LIBRARY_NAMES = {
    "httpx": "HTTPX",
    "niquests": "Niquests",
    "aiohttp": "aiohttp",
    "net-http": "Go net/http",
    "undici": "undici",
    "got": "Got",
    "reqwest": "reqwest",
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
    "idle-31": "a request after 31 idle seconds",
    "idle-65": "a request after 65 idle seconds",
}

CALLS = "test_rpc_clients.py"
"""The file with tests named `test_rpc_client_of_others[CLIENT-SCENARIO-SERVER]`."""

CALLER_NAMES = {
    "connect": "connect-go",
    "connect-http1": "connect-go over HTTP/1.1",
    "connect-grpc": "connect-go, gRPC",
    "connect-grpc-web": "connect-go, gRPC-Web",
    "grpc-go": "grpc-go",
    "grpc-java": "grpc-java",
}
CALL_NAMES = {
    "unary": "unary calls with metadata",
    "large": "message of 3 MiB both ways",
    "count": "server stream of 5000 messages",
    "sum": "client stream of 1000 messages",
    "sums": "bidirectional stream, each message after the response to the one before",
    "refused": "error with details",
    "broken": "error with details after the first messages",
    "deadline": "deadline",
    "cancel": "four cancelled calls beside three others",
}

ELSEWHERE = {
    "test_page_loads_over_ipv6": ("Chromium", OURS, "transfer_over_ipv6", ""),
    "test_browser_goes_from_h2_to_h3_by_alt_svc": (
        "Chromium",
        OURS,
        "goes_from_h2_to_h3_by_alt_svc",
        "",
    ),
    "test_page_loads_whole_over_the_protocol_asked_for[h3]": ("Chromium", OURS, "transfer", ""),
}
"""Tests whose names do not follow these patterns."""

HEAD = """\
<!-- Generated from the names of tests: UPDATE_DOCS=1 .venv/bin/python -m pytest -c tests/pytest.ini -k interop_md -->

# Interoperation

This page shows which independent QUIC stacks, HTTP and RPC clients are tested against Pronghorn,
and in which cases. The first table has QUIC stacks against Pronghorn in both roles. `make test-e2e`
runs each case. A case passes if every requested byte arrived, and if the server's counters or the
peer's output confirm what the case is about. A proxy between the two makes loss, new ports and
other network faults.

A column names the client first: "curl to us" is curl as the client of our server. An empty cell has
no test, mostly because the peer has no option for the case: curl has no switch for key updates and
migration, and in this build none for early data.

"""

LIBRARIES_HEAD = """

## HTTP libraries

The second table has HTTP clients as applications use them, against `pronghorn run` and, for
comparison, nginx. A cell names the tested versions of HTTP. It is empty if the client cannot do the
scenario, or if it fails with nginx as well: `OWN_FAULTS` in `tests/e2e/test_ecosystem.py` says why.
No case fails only with Pronghorn. `make test-long` runs all cases, and `make test-e2e` short ones
of the clients that build in seconds and need no JDK.

"""


CALLS_HEAD = """

## RPC libraries

The third table has clients that call a service behind `pronghorn run` and, for comparison, behind
nginx. connect-go speaks its own protocol, Connect, unless the column names another one. The service
is written with grpc-go, or with connect-go for clients that speak Connect or gRPC-Web. A cell is
empty if the case needs HTTP/2. `make test-long` runs all cases.

"""


def collected() -> list[str]:
    """Returns the tests as pytest lists them."""
    paths = [str(REPOSITORY / "tests" / "e2e" / name) for name in [*FILES, LIBRARIES, CALLS]]
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
    calls: set[tuple[str, str]] = set()
    for test in tests:
        if cell := re.fullmatch(r"test_client_of_others\[(\S+)-(1\.1|2)-([\w-]+)-(\w+)\]", test):
            client, protocol, scenario, server = cell.groups()
            if server == OURS:
                libraries.setdefault((scenario, client), []).append(protocol)
            continue
        if cell := re.fullmatch(r"test_rpc_client_of_others\[(\S+)-(\w+)-(\w+)\]", test):
            if cell[3] == OURS:
                calls.add((cell[2], cell[1]))
            continue
        if (found := peers_and_case(test)) is None:
            continue
        client, server, case, variant = found
        rows.setdefault(case, set()).add((client, server))
        if variant and variant not in variants.setdefault(case, []):
            variants[case].append(variant)
    pairs = [
        *((client, OURS) for client in CLIENTS.values()),
        *((OURS, server) for server in SERVERS),
    ]
    names = [f"{client} to us" if server == OURS else f"us to {server}" for client, server in pairs]
    lines = [f"| case | {' | '.join(names)} |", "|---" * (len(pairs) + 1) + "|"]
    for case, held in rows.items():
        words = case.replace("_", " ") + (
            f" ({', '.join(variants[case])})" if case in variants else ""
        )
        lines.append(f"| {words} | {' | '.join('yes' if pair in held else '' for pair in pairs)} |")
    tables = (HEAD, "\n".join(lines), LIBRARIES_HEAD, library_table(libraries), CALLS_HEAD)
    return "".join(tables) + call_table(calls) + "\n"


def library_table(cells: dict[tuple[str, str], list[str]]) -> str:
    lines = [
        f"| scenario | {' | '.join(LIBRARY_NAMES.values())} |",
        "|---" * (len(LIBRARY_NAMES) + 1) + "|",
    ]
    for scenario, words in SCENARIO_NAMES.items():
        versions = (", ".join(cells.get((scenario, client), [])) for client in LIBRARY_NAMES)
        lines.append(f"| {words} | {' | '.join(versions)} |")
    return "\n".join(lines)


def call_table(cells: set[tuple[str, str]]) -> str:
    lines = [
        f"| scenario | {' | '.join(CALLER_NAMES.values())} |",
        "|---" * (len(CALLER_NAMES) + 1) + "|",
    ]
    for scenario, words in CALL_NAMES.items():
        done = ("yes" if (scenario, client) in cells else "" for client in CALLER_NAMES)
        lines.append(f"| {words} | {' | '.join(done)} |")
    return "\n".join(lines)


def peers_and_case(test: str) -> tuple[str, str, str, str] | None:
    """Returns client, server, case and variant; None for a test without a peer, or with only our
    own programs.
    """
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
