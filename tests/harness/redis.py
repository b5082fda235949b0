"""Debian's Redis in the test's folder, and a proxy in front of it that is slow, or passes nothing."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from .addresses import own_address
from .process import Process
from .waiting import DEADLINE_SECONDS, eventually


class Redis:
    """A server at an address that stays the same when it is started again."""

    def __init__(self, folder: Path, *flags: str):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.address = own_address()
        self.flags = flags
        self.process: Process | None = None

    @property
    def url(self) -> str:
        return f"redis://{self.address}"

    @property
    def unix_url(self) -> str:
        return f"unix://{self.folder / 'redis.sock'}"

    def start(self) -> None:
        host, _, port = self.address.partition(":")
        settings = {
            "bind": host,
            "port": port,
            "unixsocket": self.folder / "redis.sock",
            "dir": self.folder,
            # Nothing is written unless the test asks for it, and then as it is in memory.
            "save": "",
            "rdbcompression": "no",
            # A replica is served at once.
            "repl-diskless-sync-delay": "0",
        }
        options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        self.process = Process(["redis-server", *options, *self.flags])
        eventually("Redis to answer", self._answers)

    def _answers(self) -> bool:
        assert self.process.popen.poll() is None, self.process.stdout
        return self._ask("PING").stdout.strip() == "PONG"

    def stop(self) -> None:
        """Ends it like a crash: what it stores is lost, or as old as its last dump."""
        self.process.stop()

    def command(self, *parts: object) -> str:
        """Does a command; returns the reply as redis-cli prints it."""
        done = self._ask(*parts)
        assert done.returncode == 0, done.stderr
        assert not done.stdout.startswith(("ERR", "(error)")), done.stdout
        return done.stdout.strip()

    def _ask(self, *parts: object) -> subprocess.CompletedProcess[str]:
        host, _, port = self.address.partition(":")
        return subprocess.run(
            ["redis-cli", "-h", host, "-p", port, *map(str, parts)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )

    def info(self, section: str) -> dict[str, str]:
        lines = self.command("INFO", section).splitlines()
        return dict(line.strip().split(":", 1) for line in lines if ":" in line)

    def keys(self) -> list[str]:
        return self.command("--scan").split()

    def dump(self) -> bytes:
        """Writes what is stored into a file; returns its content."""
        self.command("SAVE")
        return (self.folder / "dump.rdb").read_bytes()


@contextlib.contextmanager
def redis_server(folder: Path, *flags: str) -> Iterator[Redis]:
    redis = Redis(folder, *flags)
    redis.start()
    try:
        yield redis
    finally:
        redis.stop()


class TcpProxy:
    """Forwards connections to an address, until it is told to be slow or to pass nothing."""

    def __init__(self, address: str):
        host, _, port = address.partition(":")
        self.target = (host, int(port))
        self.delay_seconds = 0.0
        """How long each piece waits, in each direction."""
        self.passed = bytearray()
        """All that was passed, in both directions."""
        self.pieces = 0
        self._open = threading.Event()
        self._open.set()
        self._ended = False
        self._front = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._front.getsockname()[1]}"

    @property
    def url(self) -> str:
        return f"redis://{self.address}"

    def freeze(self) -> None:
        """Passes nothing from now on; connections stay open."""
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    def __enter__(self) -> TcpProxy:
        self._run(self._accept)
        return self

    def __exit__(self, *_exception) -> None:
        self._ended = True
        self.thaw()
        for each in [self._front, *self._sockets]:
            # Wakes the threads.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in [self._front, *self._sockets]:
            each.close()

    def _run(self, target, *arguments) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._front.accept()
                self._sockets.append(client)
                try:
                    server = socket.create_connection(self.target)
                except OSError:
                    client.shutdown(socket.SHUT_RDWR)
                    continue
                self._sockets.append(server)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._run(self._pass, client, server)
                self._run(self._pass, server, client)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                if self._ended:
                    return
                if self.delay_seconds:
                    time.sleep(self.delay_seconds)
                self.passed += data
                self.pieces += 1
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
