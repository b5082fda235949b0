"""Pebble, Let's Encrypt's test authority, with its name server, on a loopback address."""

from __future__ import annotations

import itertools
import json
import os
import re
import ssl
import urllib.request
from pathlib import Path

from .certificates import make_identity
from .process import Process
from .server import TARGET, program

TLS_PORT, CLEAR_PORT, API_PORT, MANAGEMENT_PORT, DNS_PORT, DNS_MANAGEMENT_PORT = (
    4443,
    8080,
    14000,
    15000,
    8053,
    8055,
)
"""The same ports on each address, so that configurations can be written before any server runs."""

_numbers = itertools.count(1)


def own_address() -> str:
    """Returns a loopback address that no other test on this machine uses."""
    pid = os.getpid()
    return f"127.{64 + (pid >> 8) % 64}.{pid % 256}.{next(_numbers)}"


class Pebble:
    """An authority that validates challenges at `address`, and its processes."""

    def __init__(self, folder: Path):
        self.folder = folder / "pebble"
        self.address = own_address()
        self.identity = make_identity(self.folder / "api", addresses=(self.address,))
        self.directory = f"https://{self.address}:{API_PORT}/dir"
        self.processes: list[Process] = []
        self.process: Process | None = None

    def start(
        self,
        *,
        validity: int = 7_776_000,
        tls_port: int = TLS_PORT,
        profiles: dict[str, int] | None = None,
        external: dict[str, str] | None = None,
        **environment: str,
    ) -> None:
        """Starts Pebble.

        `profiles`: each one's certificate lifetime in seconds. `external`: keys of external
        accounts.
        """
        names = program(
            "PEBBLE_CHALLTESTSRV", TARGET / "test-clients" / "pebble-challtestsrv", "scripts/setup"
        )
        nowhere = ["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", ""]
        dns, management = f"{self.address}:{DNS_PORT}", f"{self.address}:{DNS_MANAGEMENT_PORT}"
        self._run(
            names,
            "-defaultIPv4",
            self.address,
            "-dnsserver",
            dns,
            "-management",
            management,
            *nowhere,
        )
        config = {
            "listenAddress": f"{self.address}:{API_PORT}",
            "managementListenAddress": f"{self.address}:{MANAGEMENT_PORT}",
            "certificate": str(self.identity.cert),
            "privateKey": str(self.identity.key),
            "httpPort": CLEAR_PORT,
            "tlsPort": tls_port,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": external is not None,
            "externalAccountMACKeys": external or {},
            "retryAfter": {"authz": 1, "order": 1},
            "keyAlgorithm": "ecdsa",
            "profiles": {
                name: {"description": "for tests", "validityPeriod": seconds}
                for name, seconds in (profiles or {"default": validity}).items()
            },
        }
        file = self.folder / "pebble.json"
        file.write_text(json.dumps({"pebble": config}))
        pebble = program("PEBBLE", TARGET / "test-clients" / "pebble", "scripts/setup")
        quick = {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0", **environment}
        self.process = self._run(pebble, "-config", file, "-dnsserver", dns, env=quick)
        self.process.wait_for_lines("ACME directory available")

    def _run(self, *command, env=None) -> Process:
        # Its log is on standard output.
        started = Process(["sh", "-c", 'exec "$@" 1>&2', "sh", *command], env=env)
        self.processes.append(started)
        return started

    def stop(self) -> None:
        for process in self.processes:
            process.stop()

    @property
    def orders(self) -> int:
        """Returns the number of orders."""
        return sum("Added order" in line for line in self.process.lines)

    @property
    def accounts(self) -> int:
        """Returns the number of accounts."""
        return sum("accounts in memory" in line for line in self.process.lines)

    def root(self) -> Path:
        """Returns the file with the authority's signing certificate."""
        context = ssl.create_default_context(cafile=self.identity.ca)
        url = f"https://{self.address}:{MANAGEMENT_PORT}/roots/0"
        file = self.folder / "root.pem"
        with urllib.request.urlopen(url, context=context, timeout=20) as answer:
            file.write_bytes(answer.read())
        return file

    def settings(self, *challenges: str, more: str = "") -> str:
        """Returns the table of a configuration that orders here."""
        listed = ", ".join(f'"{one}"' for one in challenges or ("tls-alpn-01", "http-01"))
        return (
            f'[acme]\nterms_agreed = true\ndirectory = "{self.directory}"\ntrust = "{self.identity.ca}"\n'
            f"challenges = [{listed}]\n{more}\n"
        )

    @property
    def listen(self) -> tuple[str, str]:
        """Returns the addresses on which the ordering server must listen."""
        return f"{self.address}:{TLS_PORT}", f"http://{self.address}:{CLEAR_PORT}"


def certificates_of(state: Path) -> dict[str, Path]:
    """Returns the certificate files below `state_dir`, by host."""
    return {path.stem: path for path in state.glob("acme/*/certificates/*.pem")}


def is_whole(file: Path) -> bool:
    """Returns whether a file has a complete key and chain."""
    text = file.read_text()
    marks = re.findall(r"-----(BEGIN|END) ([A-Z ]+)-----", text)
    kinds = [kind for _, kind in marks[::2]]
    return [mark for mark, _ in marks] == ["BEGIN", "END"] * len(kinds) and kinds[1:] == [
        "CERTIFICATE"
    ] * len(kinds[1:])
