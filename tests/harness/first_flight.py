"""The first flight of a resuming client: captured and held back, to be sent by another socket."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .waiting import DEADLINE_SECONDS, eventually


@dataclass(frozen=True)
class FirstFlight:
    """Data that a client's second connection sent before it received anything."""

    version: str
    pieces: list[bytes]
    """Datagrams, or the bytes over TCP."""

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))

    def send(self, port: int, *, source: str = "127.0.0.1") -> socket.socket:
        """Sends it from a new port; the caller closes the socket."""
        kind = socket.SOCK_DGRAM if self.version == "3" else socket.SOCK_STREAM
        sender = socket.socket(socket.AF_INET, kind)
        sender.bind((source, 0))
        sender.settimeout(DEADLINE_SECONDS)
        sender.connect(("127.0.0.1", port))
        for piece in self.pieces:
            sender.send(piece)
        return sender


def capture(port: int, get: Sequence[str | Path], version: str, path: str) -> FirstFlight:
    """Runs `pronghorn get` (with its flags for trust) twice: the first request reaches the server,
    the second does not.
    """
    recorder = Datagrams(port) if version == "3" else Streams(port)
    with recorder:
        url = f"https://127.0.0.1:{recorder.port}{path}"
        command = [
            *get,
            "--http",
            version,
            "--early-data",
            "--timeout",
            str(2 * DEADLINE_SECONDS),
            url,
        ]
        client = subprocess.Popen(
            [str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            eventually("the client reconnects", lambda: recorder.held or client.poll() is not None)
            # The client sends all of it at once, and retransmits parts without a response, until it
            # gives up.
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.wait(4)
        finally:
            # A client that exits by itself sends a close, which is not part of its first flight.
            client.kill()
            _, told = client.communicate()
    assert recorder.held, f"the client sent nothing over a second connection: {told.decode()}"
    return FirstFlight(version, recorder.held)


def received_until_silence(sender: socket.socket) -> int:
    """Returns the number of bytes received without sending any.

    The server stops retransmitting after some seconds.
    """
    received = 0
    # A busy server takes its time for the first datagram.
    sender.settimeout(DEADLINE_SECONDS)
    with contextlib.suppress(TimeoutError):
        while True:
            received += len(sender.recv(65535))
            sender.settimeout(3)
    return received


class Recorder:
    """A recorder between client and server, in its own thread."""

    def __init__(self, front: socket.socket, server_port: int):
        self.front = front
        self.front.bind(("127.0.0.1", 0))
        self.server = ("127.0.0.1", server_port)
        self.held: list[bytes] = []
        self._wake, self._woken = socket.socketpair()
        self._open: list[socket.socket] = [self.front, self._wake, self._woken]
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def port(self) -> int:
        return self.front.getsockname()[1]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_exception) -> None:
        self._wake.send(b"x")
        self._thread.join()
        for each in self._open:
            each.close()

    def _run(self) -> None:
        watched = [self.front, self._woken]
        while True:
            readable, _, _ = select.select(watched, [], [])
            if self._woken in readable:
                return
            for each in readable:
                # The client may have disconnected.
                with contextlib.suppress(OSError):
                    self.handle(each, watched)

    def handle(self, readable: socket.socket, watched: list[socket.socket]) -> None:
        raise NotImplementedError


class Datagrams(Recorder):
    """Over UDP, where the client's own connection ID identifies a connection."""

    def __init__(self, server_port: int):
        super().__init__(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), server_port)
        self.back = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.back.connect(self.server)
        self._open.append(self.back)
        self.client = None
        self.first_scid = None

    def handle(self, readable, watched) -> None:
        if self.back not in watched:
            watched.append(self.back)
        if readable is self.back:
            self.front.sendto(self.back.recv(65535), self.client)
            return
        data, self.client = self.front.recvfrom(65535)
        scid = source_connection_id(data)
        self.first_scid = self.first_scid or scid
        if scid in (None, self.first_scid):
            self.back.send(data)
        else:
            self.held.append(data)


def source_connection_id(datagram: bytes) -> bytes | None:
    """Returns the source connection ID (RFC 9000 section 17.2); None for a short header, which has
    none.
    """
    if not datagram[0] & 0x80:
        return None
    at = 6 + datagram[5]
    return datagram[at + 1 : at + 1 + datagram[at]]


class Streams(Recorder):
    """Over TCP."""

    def __init__(self, server_port: int):
        super().__init__(socket.socket(socket.AF_INET, socket.SOCK_STREAM), server_port)
        self.front.listen()
        self.other: dict[socket.socket, socket.socket] = {}

    def handle(self, readable, watched) -> None:
        if readable is self.front:
            client, _ = self.front.accept()
            watched.append(client)
            self._open.append(client)
            if not self.other:
                server = socket.create_connection(self.server)
                watched.append(server)
                self._open.append(server)
                self.other = {client: server, server: client}
            return
        data = readable.recv(65535)
        if not data:
            watched.remove(readable)
            if readable in self.other:
                self.other[readable].shutdown(socket.SHUT_WR)
        elif readable in self.other:
            self.other[readable].sendall(data)
        else:
            self.held.append(data)
