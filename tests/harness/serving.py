"""Servers within the test process, each on its own thread until the test is done."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.waiting import eventually


@contextmanager
def running(run: Callable[[], None], stop: Callable[[], None]) -> Iterator[None]:
    """Runs a server in a thread; `run` returns after `stop`."""
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join()


@contextmanager
def serving(
    server: socketserver.BaseServer, stop: Callable[[], None] | None = None
) -> Iterator[None]:
    """Runs a server of the standard library, which is closed at the end, or by `stop`."""

    def close() -> None:
        server.shutdown()
        server.server_close()

    with running(lambda: server.serve_forever(poll_interval=0.02), stop or close):
        yield


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Yields a host and port where `answer` gets one connection after the other; each is closed
    when it returns.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(ConnectionError):
                    answer(connection)

    # Wakes `accept`.
    with listener, running(run, lambda: listener.shutdown(socket.SHUT_RDWR)):
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def read_head(connection: socket.socket) -> bytes:
    """Reads a head, with any bytes after it. A disconnect before its end is an error."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionResetError("the peer has left before the end of its head")
        head += piece
    return head


def wait_until_read(connection: socket.socket) -> None:
    """Waits until the peer, a local process, has read all data sent: a reset could overtake it."""
    own = connection.getsockname()[1]
    peer = connection.getpeername()[1]

    def is_read() -> bool:
        # proc_pid_net(5): the addresses are fields 2 and 3, and field 5 has the sizes of the send
        # and receive queues.
        waiting = {}
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            waiting[tuple(int(address.rpartition(":")[2], 16) for address in fields[1:3])] = fields[
                4
            ].split(":")
        # A peer that has closed reads no more.
        to_send, _ = waiting.get((own, peer), ("0", "0"))
        _, to_read = waiting.get((peer, own), ("0", "0"))
        return int(to_send, 16) == int(to_read, 16) == 0

    eventually("the peer reads", is_read)
