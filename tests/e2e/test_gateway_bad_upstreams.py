"""Misbehaving upstreams behind `pronghorn run`: no client gets a truncated response as a complete
one.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from harness.gateway import SITE
from harness.h2_origin import h2_origin
from harness.serving import listening, read_head

OK = b"HTTP/1.1 200 OK\r\n"
AFTER = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nafter"
"""Response for the next connection."""


@contextmanager
def upstream(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Sends the test's bytes to the first request, and correct responses on later connections."""
    answers = [answer]

    def read_and_answer(connection: socket.socket) -> None:
        read_head(connection)
        (answers.pop() if answers else sent(AFTER))(connection)

    with listening(read_and_answer) as address:
        yield f"http://{address}"


def sent(answer: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(answer)


def reset(answer: bytes) -> Callable[[socket.socket], None]:
    def run(connection: socket.socket) -> None:
        connection.sendall(answer)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    return run


BROKEN_OFF = {
    "no content": sent(OK + b"content-length: 5\r\n\r\n"),
    "no content, reset": reset(OK + b"content-length: 5\r\n\r\n"),
    "no chunk at all": sent(OK + b"transfer-encoding: chunked\r\n\r\n"),
    "length": sent(OK + b"content-length: 1000\r\n\r\n" + b"x" * 500),
    "chunk": sent(OK + b"transfer-encoding: chunked\r\n\r\n100\r\n" + b"x" * 16),
    "last chunk": sent(OK + b"transfer-encoding: chunked\r\n\r\n10\r\n" + b"x" * 16 + b"\r\n"),
    "no chunk": sent(OK + b"transfer-encoding: chunked\r\n\r\nxyz\r\n"),
    "reset": reset(OK + b"content-length: 1000\r\n\r\n" + b"x" * 500),
}


@pytest.mark.parametrize("answer", BROKEN_OFF.values(), ids=BROKEN_OFF.keys())
def test_truncated_response_is_never_complete_for_the_client(start, gateway, fetcher, answer):
    with upstream(answer) as address:
        gateway.write(SITE + f'[[sites.routes]]\nproxy = "{address}"\n')
        server = start(gateway.command())
        try:
            # Before any content has been forwarded, the client may get an error status.
            assert fetcher.fetch(server.origin + "/").status == 502
        except AssertionError:
            raise
        except Exception as told:
            assert not isinstance(told, TimeoutError), told
        after = fetcher.fetch(server.origin + "/")
        assert (after.status, after.body) == (200, b"after")


WRONG = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nx-half: ",
    "no HTTP": b"220 mail.example.org ESMTP\r\n",
    "two lengths": OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
    "length of words": OK + b"content-length: five\r\n\r\nhello",
    "no name": OK + b": x\r\ncontent-length: 0\r\n\r\n",
    "folded line": OK + b"x-a: 1\r\n 2\r\ncontent-length: 0\r\n\r\n",
    "endless head": OK + b"x-long: " + b"x" * 300_000 + b"\r\ncontent-length: 0\r\n\r\n",
    "switches unasked": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
}


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG.keys())
def test_malformed_response_is_a_502(start, gateway, protocol_fetcher, answer):
    with upstream(sent(answer)) as address:
        gateway.write(
            SITE + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], retries = 0 }}\n'
        )
        server = start(gateway.command())
        assert protocol_fetcher.fetch(server.origin + "/").status == 502
        assert protocol_fetcher.fetch(server.origin + "/").body == b"after"


def test_bytes_after_the_announced_length_are_discarded(start, gateway, fetcher):
    with upstream(
        sent(OK + b"content-length: 5\r\n\r\nhello" + OK + b"content-length: 5\r\n\r\nother")
    ) as address:
        gateway.write(SITE + f'[[sites.routes]]\nproxy = "{address}"\n')
        server = start(gateway.command())
        first = fetcher.fetch(server.origin + "/")
        assert (first.status, first.body) == (200, b"hello")
        assert fetcher.fetch(server.origin + "/").body == b"after"


def test_slow_response_continues_while_bytes_arrive(start, gateway, fetcher):
    def drip(connection: socket.socket) -> None:
        connection.sendall(OK + b"content-length: 21\r\n\r\n")
        for _ in range(21):
            # Longer in total than `body_timeout`, which no pause of a busy machine reaches.
            pause.wait(0.2)
            connection.sendall(b"x")

    pause = threading.Event()
    with upstream(drip) as address:
        gateway.write(
            SITE + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], body_timeout = "4s" }}\n'
        )
        server = start(gateway.command())
        assert fetcher.fetch(server.origin + "/").body == b"x" * 21


def test_stalled_response_times_out(start, gateway, protocol_fetcher):
    def stop(connection: socket.socket) -> None:
        connection.sendall(OK + b"content-length: 8\r\n\r\nhalf")
        over.wait(60)

    over = threading.Event()
    with upstream(stop) as address:
        gateway.write(
            SITE
            + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], body_timeout = "300ms" }}\n'
        )
        server = start(gateway.command())
        try:
            with pytest.raises(Exception) as told:  # noqa: PT011
                protocol_fetcher.fetch(server.origin + "/")
            assert not isinstance(told.value, TimeoutError)
        finally:
            over.set()
        assert protocol_fetcher.fetch(server.origin + "/").body == b"after"


def test_whitespace_before_a_colon_is_removed(start, gateway, protocol_fetcher):
    blanks = b"X-Sp : yes\r\nX-Tab\t: a : b\r\nContent-Length \t: 5\r\n\r\n"
    answer = OK + blanks + b"hello" + OK + b"content-length: 5\r\n\r\nother"
    for head in (b"", b"HTTP/1.1 103 Early Hints\r\nLink : </a.css>; rel=preload\r\n\r\n"):
        with upstream(sent(head + answer)) as address:
            gateway.write(SITE + f'[[sites.routes]]\nproxy = "{address}"\n')
            server = start(gateway.command())
            got = protocol_fetcher.fetch(server.origin + "/")
            assert (got.status, got.body) == (200, b"hello")
            assert (got.header("x-sp"), got.header("x-tab")) == ("yes", "a : b")
            # Bytes after the announced length are not the next response.
            assert protocol_fetcher.fetch(server.origin + "/").body == b"after"


def test_whitespace_before_a_colon_does_not_hide_a_transfer_coding(
    start, gateway, protocol_fetcher
):
    head = OK + b"Transfer-Encoding : chunked\r\nContent-Length : 3\r\n\r\n"
    with upstream(sent(head + b"5\r\nhello\r\n0\r\n\r\n")) as address:
        gateway.write(SITE + f'[[sites.routes]]\nproxy = "{address}"\n')
        server = start(gateway.command())
        assert protocol_fetcher.fetch(server.origin + "/").body == b"hello"


LARGE_HEADS = {
    "bytes": OK + b"".join(b"x-%d: %s\r\n" % (number, b"x" * 7000) for number in range(10)),
    "lines": OK + b"".join(b"x-%d: 1\r\n" % number for number in range(201)),
}


@pytest.mark.parametrize("head", LARGE_HEADS.values(), ids=LARGE_HEADS.keys())
def test_too_large_response_head_is_a_502_that_names_the_limits(
    start, gateway, protocol_fetcher, head
):
    with upstream(sent(head + b"content-length: 0\r\n\r\n")) as address:
        gateway.write(
            SITE + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], retries = 0 }}\n'
        )
        server = start(gateway.command())
        answer = protocol_fetcher.fetch(server.origin + "/")
        assert (answer.status, answer.body) == (
            502,
            b"the upstream's response headers are too large\n",
        )
        limits = r"more than 65536 bytes or 200 lines \(field_section_bytes and field_lines in \[limits\]\)"
        server.wait_for_lines(rf"GET .*: response head too large: it has {limits}")
        assert protocol_fetcher.fetch(server.origin + "/").body == b"after"


def test_configured_head_limit_applies_to_responses(start, gateway, protocol_fetcher):
    with upstream(sent(LARGE_HEADS["bytes"] + b"content-length: 5\r\n\r\nlarge")) as address:
        limits = '[limits]\nfield_section_bytes = "1MiB"\n'
        gateway.write(
            limits
            + SITE
            + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], retries = 0 }}\n'
        )
        server = start(gateway.command())
        assert protocol_fetcher.fetch(server.origin + "/").body == b"large"


def test_too_large_response_head_over_http2_is_a_502_without_a_retry(
    start, gateway, protocol_fetcher
):
    asked = []

    def answer(connection, stream: int, fields) -> None:
        asked.append(dict(fields)[":path"])
        large = (
            [(f"x-{number}", "x" * 7000) for number in range(12)] if asked[-1] == "/large" else []
        )
        connection.send_headers(stream, [(":status", "200"), *large], end_stream=True)

    with h2_origin(answer) as address:
        gateway.write(
            SITE + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], protocol = "http2" }}\n'
        )
        server = start(gateway.command())
        answered = protocol_fetcher.fetch(server.origin + "/large", method="POST", body=b"x")
        assert answered.status == 502
        server.wait_for_lines(r"POST .*/large.* malformed, or has more than 65536 bytes")
        assert protocol_fetcher.fetch(server.origin + "/small").status == 200
    assert asked == ["/large", "/small"]
