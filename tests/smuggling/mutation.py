"""Almost valid messages: valid ones with a few bytes or lines changed."""

from __future__ import annotations

from random import Random

from .http1 import CHUNKED, HOST, LAST_CHUNK, chunk, get, length, post
from .message import INNER

SEEDS = [
    post(length(len(INNER)), body=INNER),
    post(CHUNKED, body=chunk(INNER) + chunk(b"abc") + LAST_CHUNK),
    post(CHUNKED, b"Trailer: X", body=b"3;a=b\r\nabc\r\n0\r\nX: x\r\n\r\n"),
    post(b"Content-Type: text/plain", length(3), b"X: x", body=b"abc") + INNER,
    get(b"Connection: keep-alive") + get(target=b"/bytes/2"),
    post(b"Expect: 100-continue", length(len(INNER)), body=INNER),
    b"POST http://localhost/echo HTTP/1.1\r\n" + HOST + length(3) + b"\r\n\r\nabc",
]
PIECES = [
    b"\r", b"\n", b"\r\n", b"\r\n ", b" ", b"\t", b"\x00", b"\x0b", b"\x0c", b"\x7f", b"\x85", b"\xa0",
    b":", b";", b",", b'"', b"+",
    b"-", b"_", b"x", b"0", b"1", b"0x", b"chunked", b"identity", b"#", b"\r\n\r\n", b"0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: 3\r\n", b"Content-Length: 0\r\n", b"HTTP/1.0",
]  # fmt: skip


def mutated(random: Random) -> bytes:
    """Returns a message with one to three changes."""
    message = random.choice(SEEDS)
    for _ in range(random.randint(1, 3)):
        message = random.choice([inserted, replaced, removed, with_line_again, with_lines_swapped])(
            message, random
        )
    return message


def inserted(message: bytes, random: Random) -> bytes:
    at = random.randint(0, len(message))
    return message[:at] + random.choice(PIECES) + message[at:]


def replaced(message: bytes, random: Random) -> bytes:
    at = random.randrange(len(message))
    return message[:at] + random.choice(PIECES) + message[at + 1 :]


def removed(message: bytes, random: Random) -> bytes:
    at = random.randrange(len(message))
    return message[:at] + message[at + random.randint(1, 2) :] or message


def with_line_again(message: bytes, random: Random) -> bytes:
    lines = message.split(b"\r\n")
    lines.insert(random.randrange(len(lines)), random.choice(lines))
    return b"\r\n".join(lines)


def with_lines_swapped(message: bytes, random: Random) -> bytes:
    lines = message.split(b"\r\n")
    first, second = random.randrange(len(lines)), random.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return b"\r\n".join(lines)
