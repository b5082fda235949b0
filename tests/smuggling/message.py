"""Definition of a case, and the responses that it may get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

INNER_SIZE = 13
MARKER_SIZE = 7
INNER = f"GET /bytes/{INNER_SIZE} HTTP/1.1\r\nHost: inner\r\n\r\n".encode()
"""The smuggled request; its response is recognized by its size."""


@dataclass(frozen=True)
class Answer:
    """A response as received, without interim ones."""

    status: int
    body: bytes

    @property
    def is_inner(self) -> bool:
        return (self.status, len(self.body)) == (200, INNER_SIZE)

    @property
    def is_marker(self) -> bool:
        return (self.status, len(self.body)) == (200, MARKER_SIZE)


Verdict = Callable[[list[Answer]], bool]
"""Returns whether a strict parser may have given these responses, and then closed the connection.
"""


def refused(got: list[Answer]) -> bool:
    """One error; nothing after it on the connection was processed."""
    return len(got) == 1 and 400 <= got[0].status < 600


def cut_off(got: list[Answer]) -> bool:
    """The content is invalid: an error if there was time for one; nothing later was processed."""
    return not got or refused(got)


def one_message(got: list[Answer]) -> bool:
    """The whole message is one request; its response ends the connection or is followed by the
    marker's.
    """
    return (
        1 <= len(got) <= 2
        and not got[0].is_inner
        and not got[0].is_marker
        and all(answer.is_marker for answer in got[1:])
    )


def two_messages(got: list[Answer]) -> bool:
    """The inner request is not smuggled here: a strict parser sees it too."""
    return len(got) == 3 and got[1].is_inner and got[2].is_marker


def content(expected: bytes) -> Verdict:
    """One request with this content, and then the marker."""

    def verdict(got: list[Answer]) -> bool:
        return len(got) == 2 and got[0] == Answer(200, expected) and got[1].is_marker

    return verdict


@dataclass(frozen=True)
class Case:
    name: str
    source: str
    """The paper, article or CVE of the case."""
    message: bytes
    verdict: Verdict = refused


def answers(stream: bytes) -> list[Answer]:
    """Parses the responses in all data that a server sent on one connection; a truncated one is
    dropped.
    """
    found = []
    while stream:
        head, end, stream = stream.partition(b"\r\n\r\n")
        if not end:
            break
        status = int(head.split(b" ", 2)[1])
        lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
        fields = {name.lower(): value.strip() for name, _, value in lines}
        if status < 200:
            continue
        if fields.get(b"transfer-encoding") == b"chunked":
            body, stream = dechunked(stream)
        else:
            size = int(fields.get(b"content-length", b"0"))
            body, stream = stream[:size] if len(stream) >= size else None, stream[size:]
        if body is None:
            break
        found.append(Answer(status, body))
    return found


def dechunked(stream: bytes) -> tuple[bytes | None, bytes]:
    body = b""
    while True:
        line, end, stream = stream.partition(b"\r\n")
        if not end:
            return None, b""
        size = int(line, 16)
        if size == 0:
            _, end, rest = (b"\r\n" + stream).partition(b"\r\n\r\n")
            return body if end else None, rest
        body += stream[:size]
        stream = stream[size + 2 :]
