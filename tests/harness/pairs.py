"""Pairs of client and server: ours with independent ones, in both roles."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .certificates import Identity
from .clients import aioquic_h3, curl, go
from .server import BUILT, REPOSITORY, program, pronghorn, quic_go_server

TIMEOUT_SECONDS = 100

SMALL = 10_000
LARGE = 2_000_000
"""Sizes of the files in these tests: about one flight, and one large enough for events in
mid-transfer.
"""

AIOQUIC_SERVER = REPOSITORY / "tests" / "clients" / "aioquic" / "server.py"


@dataclass(frozen=True)
class Got:
    """Result of a download."""

    status: int
    size: int
    sha256: str


Download = Callable[[str, Path], Got]


def by_fetcher(fetch) -> Download:
    def download(url: str, ca: Path) -> Got:
        answer = fetch(url, ca=ca, method="GET", headers=[], body=None)
        return Got(answer.status, answer.size, answer.sha256)

    return download


def h3_crate_client() -> Path:
    return program("H3_CRATE_CLIENT", BUILT / "h3-crate-client", "make build")


def by_h3_crate(url: str, ca: Path) -> Got:
    (got,) = h3_crate(url, ca)
    return got


def h3_crate(url: str, ca: Path, *arguments: str | Path) -> list[Got]:
    return [
        Got(each["status"], each["size"], each["sha256"])
        for each in h3_crate_says(url, ca, *arguments)["responses"]
    ]


def h3_crate_says(url: str, ca: Path, *arguments: str | Path) -> dict:
    return json.loads(run([h3_crate_client(), "--ca", ca, *arguments, url]))


def by_pronghorn(url: str, ca: Path) -> Got:
    body = run(
        [pronghorn(), "get", "--http", "3", "--timeout", str(TIMEOUT_SECONDS), "--cacert", ca, url]
    )
    return Got(200, len(body), hashlib.sha256(body).hexdigest())


def run(command: list[str | Path]) -> bytes:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, timeout=TIMEOUT_SECONDS + 10
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@dataclass(frozen=True)
class Pair:
    """A client and a server, one of them ours."""

    name: str
    download: Download
    server: str

    @property
    def id(self) -> str:
        """Name of the pair in a test's ID."""
        return self.name.replace(" ", "-")

    def command(
        self, directory: Path, identity: Identity, *flags: str, host: str = "127.0.0.1"
    ) -> list[str | Path]:
        """Starts the server. Ours serves `directory`; the others generate their bytes."""
        identified = ["--cert", identity.cert, "--key", identity.key, *flags]
        if self.server == "pronghorn":
            listen = f"[{host}]:0" if ":" in host else f"{host}:0"
            return [pronghorn(), "serve", directory, "--listen", listen, *identified]
        if self.server == "aioquic":
            return [sys.executable, AIOQUIC_SERVER, "--host", host, *identified]
        return [quic_go_server(), "-host", host, *identified]

    def path(self, size: int) -> str:
        return f"/{size}.bin" if self.server == "pronghorn" else f"/bytes/{size}"


PAIRS = [
    Pair("aioquic to pronghorn", by_fetcher(aioquic_h3.fetch), "pronghorn"),
    Pair("quic-go to pronghorn", by_fetcher(go.fetcher("3")), "pronghorn"),
    Pair("curl to pronghorn", by_fetcher(curl.fetcher("HTTP/3")), "pronghorn"),
    Pair("h3 crate to pronghorn", by_h3_crate, "pronghorn"),
    Pair("pronghorn to quic-go", by_pronghorn, "quic-go"),
    Pair("pronghorn to aioquic", by_pronghorn, "aioquic"),
]
