"""A Redis on a Unix socket, and what its counters say about a load."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..processes import Server

VARIABLE = "PRONGHORN_BENCH_REDIS"
READY_SECONDS = 10
REPLY_SECONDS = 30
SETTLE_SECONDS = 10
"""Longest time for the last sessions of a load to arrive."""


class RedisError(Exception):
    """Redis is absent, or does not do what it should."""


def program() -> Path:
    """Returns the path of redis-server."""
    given = os.environ.get(VARIABLE)
    found = shutil.which(given or "redis-server")
    if found is None:
        what = f"{VARIABLE}={given}: program not found" if given else "redis-server not found"
        raise RedisError(
            f"{what}; install Redis 6.2 or later (Debian: `apt-get install redis-server`), or set "
            f"{VARIABLE} to its path"
        )
    # Not resolved: the program of Debian knows by its name what it is to be.
    return Path(found).absolute()


class Redis:
    """A connection to a Redis."""

    def __init__(self, path: Path):
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self.socket.settimeout(REPLY_SECONDS)
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise
        self.stream = self.socket.makefile("rb")

    def __enter__(self) -> Redis:
        return self

    def __exit__(self, *_) -> None:
        self.stream.close()
        self.socket.close()

    def command(self, *words: str) -> str | int | None:
        request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        self.socket.sendall(request.encode("ascii"))
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise RedisError(f"Redis closed the connection after {words[0]}")
        kind, rest = line[:1], line[1:-2].decode()
        match kind:
            case b"+":
                return rest
            case b":":
                return int(rest)
            case b"$" if rest == "-1":
                return None
            case b"$":
                return self.stream.read(int(rest) + 2)[:-2].decode()
            case _:
                raise RedisError(f"Redis answered {words[0]} with {kind.decode()}{rest}")

    def counters(self) -> Counters:
        commands = parse_commandstats(str(self.command("INFO", "commandstats")))
        memory = parse_info(str(self.command("INFO", "memory")))
        return Counters(commands, int(memory["used_memory"]), int(self.command("DBSIZE") or 0))

    def settled(self) -> None:
        """Waits until no more sessions arrive."""
        deadline, before = time.monotonic() + SETTLE_SECONDS, -1
        while time.monotonic() < deadline:
            present = self.command("DBSIZE")
            if present == before:
                return
            before = present
            time.sleep(0.2)
        raise RedisError(f"sessions still arrive {SETTLE_SECONDS} s after the load")


@dataclass(frozen=True)
class Counters:
    """State of a Redis at one time."""

    calls: Mapping[str, int]
    """Number of calls of each command since the start."""
    used_bytes: int
    """All memory that Redis has allocated."""
    keys: int


def parse_info(text: str) -> dict[str, str]:
    """Parses the reply to INFO."""
    lines = (line.strip() for line in text.splitlines())
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def parse_commandstats(text: str) -> dict[str, int]:
    """Returns the number of calls of each command, from the reply to INFO commandstats."""
    calls = {}
    for name, values in parse_info(text).items():
        if name.startswith("cmdstat_"):
            fields = dict(part.split("=", 1) for part in values.split(","))
            calls[name.removeprefix("cmdstat_").lower()] = int(fields["calls"])
    return calls


OWN_INFO, OWN_COMMANDS = 2, ("dbsize", "ping")
"""Calls of INFO by the first of two readings, and commands that only the bench sends."""


def operations(before: Counters, after: Counters, handshakes: int) -> dict[str, float]:
    """Returns the calls of each command per handshake, without the bench's own."""
    if handshakes <= 0:
        raise RedisError("no handshakes to divide the operations by")
    found = {}
    for name, calls in after.calls.items():
        more = calls - before.calls.get(name, 0) - (OWN_INFO if name == "info" else 0)
        if more > 0 and name not in OWN_COMMANDS:
            found[name] = more / handshakes
    return found


def bytes_per_session(before: Counters, after: Counters) -> float | None:
    """Returns how much memory each of the new sessions takes; None if there are none."""
    keys = after.keys - before.keys
    return (after.used_bytes - before.used_bytes) / keys if keys > 0 else None


@contextlib.contextmanager
def running(path: Path, folder: Path, core: int) -> Iterator[tuple[Server, Path]]:
    """Runs a Redis that writes nothing to a disk; yields it with its socket."""
    listen = folder / "redis.sock"
    command = [str(path), "--port", "0", "--unixsocket", str(listen), "--dir", str(folder)]
    command += ["--save", "", "--appendonly", "no", "--daemonize", "no"]
    server = Server(command, core, folder / "redis.log", {})
    try:
        wait_until_ready(server, listen)
        yield server, listen
    finally:
        server.stop()


def wait_until_ready(server: Server, listen: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if (why := server.ended()) is not None:
            raise RedisError(f"redis-server: {why}")
        with contextlib.suppress(OSError), Redis(listen) as redis:
            redis.command("PING")
            return
        time.sleep(0.02)
    raise RedisError(f"redis-server did not listen on {listen} within {READY_SECONDS} s")
