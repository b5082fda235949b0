"""Starts the program and the test handler, and parses their listening addresses."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from .certificates import Identity
from .process import Process

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target")
BUILT = TARGET / "quick"
"""Build output of `make build`."""

LISTENING = r"listening on (https?)://(\S+?):(\d+)(?:/|\s|$)(?:\(([^)]*)\))?"


def program(variable: str, default: Path, build: str) -> Path:
    """Returns the path of a build output, or fails with a message that says how to build it."""
    path = Path(os.environ.get(variable) or default)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there: run `{build}`, or set {variable} to its path"
        )
    return path


def pronghorn() -> Path:
    return program("PRONGHORN", BUILT / "pronghorn", "make build")


def echo() -> Path:
    return program("PRONGHORN_ECHO", BUILT / "examples" / "echo", "make build")


def server_example(name: str) -> Path:
    """Returns an example of the crate `server`; PRONGHORN_SERVER_EXAMPLES names another folder of
    them.
    """
    folder = Path(os.environ.get("PRONGHORN_SERVER_EXAMPLES") or BUILT / "examples")
    example = folder / name
    if not example.is_file():
        raise FileNotFoundError(f"{example} is not there: run `make build`")
    return example


def custom_layer() -> Path:
    return program("PRONGHORN_CUSTOM_LAYER", BUILT / "custom-layer", "make build")


def webtransport() -> Path:
    return program("PRONGHORN_WEBTRANSPORT", BUILT / "examples" / "webtransport", "make build")


def quic_go_client() -> Path:
    return program("QUIC_GO_CLIENT", TARGET / "test-clients" / "quic-go-client", "scripts/setup")


def quic_go_server() -> Path:
    return program("QUIC_GO_SERVER", TARGET / "test-clients" / "quic-go-server", "scripts/setup")


def stalled() -> Path:
    return program("STALLED", TARGET / "test-clients" / "stalled", "scripts/setup")


def h2spec() -> Path:
    return program("H2SPEC", TARGET / "test-clients" / "h2spec", "scripts/setup")


@dataclass(frozen=True)
class Listener:
    """A `listening on` line."""

    scheme: str
    host: str
    """As in a URL: an IPv6 address in brackets."""
    port: int
    protocols: tuple[str, ...]

    def origin(self, host: str | None = None) -> str:
        return f"{self.scheme}://{host or self.host}:{self.port}"


class Server(Process):
    """A ready server: each requested listener has reported its address."""

    def __init__(self, command, *, listeners: int = 1, env: dict[str, str] | None = None):
        super().__init__(command, env=env)
        try:
            found = self.wait_for_lines(LISTENING, listeners)
        except AssertionError:
            self.stop()
            raise
        self.listeners = [
            Listener(
                match[1], match[2], int(match[3]), tuple(re.findall(r"[\w./-]+", match[4] or ""))
            )
            for match in found
        ]

    @property
    def origin(self) -> str:
        """Returns the first listener's origin, such as `https://127.0.0.1:40123`."""
        return self.listeners[0].origin()

    @property
    def port(self) -> int:
        return self.listeners[0].port

    @property
    def host(self) -> str:
        return urlsplit(self.origin).hostname

    def counters(self) -> dict[str, int]:
        """Returns the counters that a server with `--stats` printed at its end."""
        return json.loads(next(line for line in reversed(self.lines) if line.startswith("{")))

    def serves(self, fetcher, path: str = "/") -> None:
        """Checks that it still responds."""
        assert fetcher.fetch(self.origin + path).status == 200


def serve_command(
    directory: Path, identity: Identity | None, *flags: str, listen=("127.0.0.1:0",)
) -> list[str | Path]:
    command: list[str | Path] = [pronghorn(), "serve", directory]
    for address in listen:
        command += ["--listen", address]
    if identity is not None:
        command += ["--cert", identity.cert, "--key", identity.key]
    return [*command, *flags]


def server_example_command(name: str, identity: Identity, *flags: str | Path) -> list[str | Path]:
    command = [
        server_example(name),
        "--listen",
        "127.0.0.1:0",
        "--cert",
        identity.cert,
        "--key",
        identity.key,
    ]
    return [*command, *flags]


def echo_command(identity: Identity, *flags: str, listen: str = "127.0.0.1:0") -> list[str | Path]:
    return [echo(), "--listen", listen, "--cert", identity.cert, "--key", identity.key, *flags]


def webtransport_echo_command(identity: Identity) -> list[str | Path]:
    """Returns the command for the same sessions in an application of the crate `server`."""
    return server_example_command("webtransport_echo", identity)


def webtransport_command(identity: Identity, *flags: str) -> list[str | Path]:
    return [
        webtransport(),
        "--listen",
        "127.0.0.1:0",
        "--cert",
        identity.cert,
        "--key",
        identity.key,
        *flags,
    ]
