"""Pronghorn servers on loopback, each on a free port, and their load."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SECONDS = 600
"""Longest time for a server's start or end, and for a generator's requests."""


class OursError(Exception):
    """A server or a generator failed."""


def gateway(program: Path, folder: Path, routes: str, identity: Path | None = None) -> list[str]:
    """Returns the command that serves a site with one worker and no log.

    `identity`: the folder of the certificate.
    """
    folder.mkdir(exist_ok=True)
    config = folder / "pronghorn.toml"
    listen = "127.0.0.1:0" if identity else "http://127.0.0.1:0"
    tls = (
        f'tls = {{ cert = "{identity}/cert.pem", key = "{identity}/key.pem" }}\n'
        if identity
        else ""
    )
    server = f'[server]\nlisten = ["{listen}"]\nworkers = 1\n[log]\naccess = "off"\n'
    config.write_text(f'{server}[[sites]]\nhosts = ["127.0.0.1"]\n{tls}{routes}')
    return [str(program), "run", "-c", str(config)]


@contextmanager
def running(command: Sequence[str], work: Path) -> Iterator[int]:
    """Runs a server, yields its port, stops it with a signal and checks its exit."""
    with tempfile.NamedTemporaryFile(dir=work) as stream:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
        )
        log = Path(stream.name)
        try:
            yield wait_for_port(server, log)
            server.send_signal(signal.SIGTERM)
            server.wait(SECONDS)
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()
        if server.returncode != 0:
            raise OursError(
                f"the server ended with {server.returncode}: {log.read_text(errors='replace')[-500:]}"
            )


def wait_for_port(server: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        if match := re.search(r"listening on https?://\S+?:(\d+)", log.read_text(errors="replace")):
            return int(match[1])
        time.sleep(0.05)
    raise OursError(f"the server did not start: {log.read_text(errors='replace')[-500:]}")


def generate(generator: Path, load: Sequence[str], units: int, *urls: str) -> None:
    """Sends this many requests; every response must be good."""
    command = [str(generator), "load", "--json", "--no-verify", *load, "-n", str(units), *urls]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if ended.returncode != 0:
        raise OursError(f"the generator ended with {ended.returncode}: {ended.stderr[-300:]}")
    report = json.loads(ended.stdout)
    if report["requests"]["status"]["2xx"] != units:
        raise OursError(f"{report['requests']['status']} instead of {units} responses")


def make_certificate(work: Path) -> None:
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-keyout", str(work / "key.pem"), "-out", str(work / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
