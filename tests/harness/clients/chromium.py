"""Headless Chromium, through tests/clients/chromium/visit.mjs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ..server import REPOSITORY

VISIT = REPOSITORY / "tests" / "clients" / "chromium" / "visit.mjs"

# Debian's wrapper in /usr/bin adds flags, so the browser itself comes first.
PLACES = ["/usr/lib/chromium/chromium", shutil.which("chromium"), shutil.which("chromium-browser")]


def chromium() -> Path:
    for place in [os.environ.get("CHROMIUM"), *PLACES]:
        if place and Path(place).is_file():
            return Path(place)
    raise FileNotFoundError(
        "Chromium is not there: run `scripts/setup`, or set CHROMIUM to its path"
    )


NAME = "page.test"
"""The host in a page's URL: the browser gets its address by a flag, so no resolver is used."""


def common_flags(spki_hash: str, address: str = "127.0.0.1") -> list[str]:
    return [
        f"--ignore-certificate-errors-spki-list={spki_hash}",
        # The browser contacts its own services at start; only the server under test may be
        # reachable.
        f"--host-resolver-rules=MAP {NAME} {address}, MAP * ~NOTFOUND",
        "--disable-background-networking",
        "--disable-component-update",
    ]


def protocol_flags(protocol: str, host: str, port: int) -> list[str]:
    """Returns flags that make it use one protocol from the first request on."""
    return {
        "http/1.1": ["--disable-quic", "--disable-http2"],
        "h2": ["--disable-quic"],
        "h3": [f"--origin-to-force-quic-on={host}:{port}"],
    }[protocol]


def visit(url: str, flags: list[str], *, loads: int = 1, awaits_result: bool = False) -> dict:
    """Visits a page. `awaits_result`: the page sets `globalThis.result` when it is done."""
    asked = {
        "url": url,
        "flags": flags,
        "loads": loads,
        "chromium": str(chromium()),
        "awaitsResult": awaits_result,
    }
    done = subprocess.run(
        ["node", VISIT, json.dumps(asked)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def chromium_options(flags: list[str]) -> dict[str, Any]:
    """Returns the launch options for tests/clients/browser."""
    return {"browser": "chromium", "program": str(chromium()), "flags": flags}
