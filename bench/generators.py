"""The two load generators: their command lines and their output."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from .tables import Workload

VERSIONS = {"h3": "3", "h2": "2", "h1": "1.1", "h1-clear": "1.1"}
ALPN = {"h3": "h3", "h2": "h2", "h1": "http/1.1"}
PREFERRED_GROUPS = "X25519MLKEM768:X25519:P-256:P-384"
"""Groups that `pronghorn load` offers.

h2load's default has no hybrid group: every server would fall back to X25519.
"""
GIVE_UP_SECONDS = 60
"""Longest time for one run of a generator; after it the run is ended and counts as failed."""


class GeneratorError(Exception):
    """A generator failed, or its requests did."""


@dataclass(frozen=True)
class Load:
    """Result of one run of a generator."""

    requests: int
    """Responses with a status of 200 to 299."""
    failed: int
    body_bytes: int
    seconds: float
    requests_per_second: float
    p50_ms: float | None
    p99_ms: float | None
    connections: int | None
    resumed: int | None
    websockets: int | None = None
    """Connections that were opened and stayed open to the end."""
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict:
        return asdict(self)


def load_command(
    program: Path, workload: Workload, port: int, requests: int | None = None
) -> list[str]:
    """Builds the command line. `requests`: fewer requests than the workload has, for a warm-up."""
    command = [str(program), "load", "--json", "--no-verify", "--http", VERSIONS[workload.protocol]]
    command += [
        "--connect-to",
        f"127.0.0.1:{port}",
        "--timeout",
        "20",
        "-c",
        str(workload.connections),
    ]
    if workload.kind == "handshakes" or workload.reconnect:
        command += ["--reconnect"]
    else:
        command += ["-m", str(workload.streams)]
    if workload.resume:
        command += ["--resume"]
    if workload.websocket:
        command += ["--websocket"]
    if workload.rate is not None and requests is None:
        command += ["--rate", str(workload.rate), "-d", str(workload.seconds)]
    else:
        command += ["-n", str(requests or workload.requests)]
    return [*command, url(workload, port)]


def h2load_command(
    program: Path, workload: Workload, port: int, requests: int | None = None
) -> list[str]:
    count = requests or workload.requests
    # Over HTTP/1.1, several streams are pipelined requests.
    version = (
        "--h1" if workload.protocol == "h1-clear" else f"--alpn-list={ALPN[workload.protocol]}"
    )
    command = [str(program), version, f"--connect-to=127.0.0.1:{port}"]
    if workload.kind == "handshakes":
        # h2load opens a connection for each client. A hundred in a tenth of a second: all at once
        # would overflow the socket buffers.
        command += [
            "-n",
            str(count),
            "-c",
            str(count),
            "-m",
            "1",
            "-r",
            str(min(100, count)),
            "--rate-period=100ms",
        ]
    else:
        command += ["-n", str(max(count, workload.connections)), "-c", str(workload.connections)]
        command += ["-m", str(workload.streams)]
    if workload.kind == "transfer":
        # Windows larger than the data in flight, as in the other generator: 16 MiB.
        command += ["-w", "24", "-W", "24"]
    if workload.cipher:
        command += [f"--tls13-ciphers={workload.cipher}"]
    if workload.groups or workload.kind == "handshakes":
        command += [f"--groups={workload.groups or PREFERRED_GROUPS}"]
    return [*command, url(workload, port)]


def url(workload: Workload, port: int) -> str:
    scheme = "http" if workload.protocol == "h1-clear" else "https"
    return f"{scheme}://localhost:{port}/{workload.file}"


def parse_load(text: str) -> Load:
    report = json.loads(text)
    status = report["requests"]["status"]
    answered = status["2xx"]
    failed = (
        report["requests"]["errors"]["total"]
        + report["requests"]["given_up"]
        + sum(status.values())
        - answered
    )
    latency = report["latency_us"]["response"]
    return Load(
        requests=answered,
        failed=failed,
        body_bytes=report["body"]["received_bytes"],
        seconds=report["measured_seconds"],
        requests_per_second=report["requests"]["per_second"],
        p50_ms=latency["p50"] / 1000 if latency["count"] else None,
        p99_ms=latency["p99"] / 1000 if latency["count"] else None,
        connections=report["connections"]["opened"],
        resumed=report["connections"]["resumed"],
        websockets=report["websockets"]["opened"] - report["websockets"]["ended"],
        warnings=tuple(warning["kind"] for warning in report["warnings"]),
    )


UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


def parse_h2load(text: str) -> Load:
    """Parses h2load's text output; it has no machine-readable format."""
    finished = found(r"finished in ([\d.]+)(us|ms|s|m), ([\d.]+) req/s", text)
    requests = found(
        r"requests: (\d+) total, (\d+) started, (\d+) done, (\d+) succeeded, (\d+) failed", text
    )
    status = found(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", text)
    # "traffic: 1.23MB (1234567) total, 12B (12) headers (space savings 0.00%), 34B (34) data"
    traffic = found(r"traffic: .*, \S+ \((\d+)\) data", text)
    answered = min(int(requests[4]), int(status[1]))
    return Load(
        requests=answered,
        failed=int(requests[1]) - answered,
        body_bytes=int(traffic[1]),
        seconds=float(finished[1]) * SECONDS[finished[2]],
        requests_per_second=float(finished[3]),
        p50_ms=percentile(text, 0),
        p99_ms=percentile(text, 1),
        connections=None,
        resumed=None,
    )


def percentile(text: str, place: int) -> float | None:
    """Returns the median or 99th percentile of the request time, if this version prints it."""
    header = re.search(r"^\s+min\s+max\s+median\s+p95\s+p99\s+mean", text, re.MULTILINE)
    row = re.search(r"^request\s*:\s+(.*)$", text, re.MULTILINE)
    if header is None or row is None:
        return None
    times = re.findall(r"([\d.]+)(us|ms|s|m)\b", row[1])
    number, unit = times[2 if place == 0 else 4]
    return float(number) * SECONDS[unit] * 1000


def found(pattern: str, text: str) -> re.Match[str]:
    match = re.search(pattern, text)
    if match is None:
        raise GeneratorError(
            f"unexpected output of h2load, nothing matches {pattern!r}: {text.strip()[-300:]}"
        )
    return match
