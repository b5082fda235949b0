"""A FastCGI application that responds byte by byte as the test says."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from .serving import listening

PARAMS, END_REQUEST, STDIN, STDOUT, STDERR = 4, 3, 5, 6, 7
COMPLETE, OVERLOADED, UNKNOWN_ROLE = 0, 2, 3
HEAD = b"Content-Type: text/plain\r\n\r\n"


def record(kind: int, content: bytes, *, request: int = 1, padding: int = 0) -> bytes:
    return (
        struct.pack("!BBHHBx", 1, kind, request, len(content), padding) + content + bytes(padding)
    )


def end(status: int = COMPLETE) -> bytes:
    return record(END_REQUEST, struct.pack("!IB3x", 0, status))


def output(*pieces: bytes) -> bytes:
    return b"".join(record(STDOUT, piece) for piece in pieces)


@dataclass
class Asked:
    """A request as the application receives it."""

    parameters: list[tuple[str, str]]
    """Fields as often as received."""
    content: bytes

    def parameter(self, name: str) -> str | None:
        """Returns the only value; a repeated one fails the test."""
        values = [value for other, value in self.parameters if other == name]
        assert len(values) < 2, f"{name} has {len(values)} values: {values}"
        return values[0] if values else None


def decode(encoded: bytes) -> list[tuple[str, str]]:
    at, found = 0, []

    def length() -> int:
        nonlocal at
        size = 1 if encoded[at] < 0x80 else 4
        at += size
        return int.from_bytes(encoded[at - size : at], "big") & 0x7FFF_FFFF

    while at < len(encoded):
        sizes = (length(), length())
        texts = []
        for size in sizes:
            texts.append(encoded[at : at + size].decode("latin-1"))
            at += size
        found.append(tuple(texts))
    return found


def read_request(connection: socket.socket) -> Asked:
    """Reads to the end of the request's content."""
    stream = connection.makefile("rb")
    parameters, content = b"", b""
    while True:
        _, kind, _, length, padding = struct.unpack("!BBHHBx", stream.read(8))
        piece = stream.read(length + padding)[:length]
        if kind == PARAMS:
            parameters += piece
        elif kind == STDIN and length == 0:
            return Asked(decode(parameters), content)
        elif kind == STDIN:
            content += piece


@contextmanager
def application(
    answer: Callable[[socket.socket], None], asked: list[Asked] | None = None
) -> Iterator[str]:
    """Responds to each request with `answer`, then closes the connection.

    Requests are added to `asked`.
    """

    def read_and_answer(connection: socket.socket) -> None:
        with suppress(struct.error):
            request = read_request(connection)
            if asked is not None:
                asked.append(request)
            answer(connection)

    with listening(read_and_answer) as address:
        yield f"fastcgi://{address}"


def sent(answer: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(answer)
