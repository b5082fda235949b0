"""Applications over FastCGI behind `pronghorn run` that lie, break off or never stop."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.fastcgi import (
    END_REQUEST,
    HEAD,
    OVERLOADED,
    STDERR,
    STDIN,
    STDOUT,
    UNKNOWN_ROLE,
    application,
    end,
    output,
    record,
    sent,
)
from harness.gateway import SITE


def fetch(start, gateway, fetcher, address: str, **asked):
    gateway.write(SITE + f'[[sites.routes]]\nproxy = "{address}"\n')
    server = start(gateway.command())
    return server, lambda: fetcher.fetch(server.origin + "/", **asked)


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (b"", 502, "the connection ended"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 502, "does not speak FastCGI: its first byte is 72"),
        (output(HEAD[:5]), 502, "the connection ended"),
        (end(), 502, "ended without a response"),
        (end(OVERLOADED), 502, "no room"),
        (end(UNKNOWN_ROLE), 502, "no responder"),
        (record(STDOUT, HEAD, request=2) + end(), 502, "a request 2 that was not asked"),
        (record(STDIN, HEAD) + end(), 502, "a record of type 5"),
        (record(END_REQUEST, b"short"), 502, "with 5 bytes in place of 8"),
        (output(b"<html>no head at all</html>\n\n") + end(), 502, "not one of CGI"),
        (output(b"status: 100 Continue\n\n") + end(), 502, "not one of a final response"),
        (output(b"content-length: 5\ncontent-length: 6\n\nhello") + end(), 502, "not clear how long"),
        (output(b"content-length: 99999999999999999999\n\nhello") + end(), 502, "not clear how long"),
        (output(b"X-Accel-Redirect: /files/a\n\n") + end(), 502, r"leaves .*\(x-accel-redirect\)"),
        (output(b"X-Sendfile: /srv/files/a\n\n") + end(), 502, r"leaves .*\(x-sendfile\)"),
        (output(*([b"a: " + b"b" * 1000 + b"\n"] * 70)) + output(b"\n") + end(), 502, "it has more than 65536"),
        (output(b"a: b\n" * 300 + b"\n") + end(), 502, "256 lines"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_no_response_is_a_bad_gateway(start, gateway, protocol_fetcher, answer, status, reason):
    with application(sent(answer)) as address:
        server, ask = fetch(start, gateway, protocol_fetcher, address)
        assert ask().status == status
        server.wait_for_lines(rf"{address}: GET .*{reason}")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (output(HEAD + b"half a page"), "the connection ended"),
        (output(HEAD + b"half a page") + record(STDOUT, b"x" * 100)[:50], "the connection ended"),
        (output(HEAD + b"half a page") + b"garbage!", "does not speak FastCGI"),
        (output(HEAD + b"half a page") + end(OVERLOADED), "gave the request up"),
        (output(b"content-length: 100\n\nhalf a page") + end(), "shorter than its content-length"),
        (output(b"content-length: 5\n\nmore than that") + end(), "longer than its content-length"),
        (output(b"content-length: 5\n\nmore", b" than that") + end(), "longer than its content-length"),
    ],
    ids=["closed", "in a record", "garbage", "given up", "short", "long", "long in pieces"],
)
def test_half_a_response_is_no_whole_one(start, gateway, protocol_fetcher, answer, reason):
    with application(sent(answer)) as address:
        server, ask = fetch(start, gateway, protocol_fetcher, address)
        with pytest.raises(Exception, match=r"."):
            ask()
        server.wait_for_lines(rf"{address}: GET .*{reason}.*; the response breaks off$")


@pytest.mark.parametrize(
    "answer",
    [
        b"".join(record(STDOUT, bytes([byte]), padding=255) for byte in HEAD + b"page") + end(),
        output(b"", HEAD, b"", b"page", b"") + end(),
        record(11, b"\xff" * 8, request=0) + output(HEAD + b"page") + record(10, b"", request=0) + end(),
        b"".join(record(STDERR, b"oh no\n" * 1000) for _ in range(200)) + output(HEAD + b"page") + end(),
        output(HEAD + b"page") + end() + b"what comes after the end",
        output(b"transfer-encoding: chunked\nconnection: close, x-a\nkeep-alive: 5\n" + HEAD + b"page") + end(),
    ],
    ids=["byte by byte", "empty records", "about itself", "complaints", "after the end", "fields of connections"],
)
def test_odd_but_right_responses_come_whole(start, gateway, protocol_fetcher, answer):
    with application(sent(answer)) as address:
        _, ask = fetch(start, gateway, protocol_fetcher, address)
        page = ask()
        assert (page.status, page.body) == (200, b"page")
        assert page.header("keep-alive") is None


@pytest.mark.parametrize(
    "piece",
    [record(STDERR, b"oh no\n" * 10_000) * 10, record(11, b"x" * 60_000, request=0) * 10, output(b"") * 10_000],
    ids=["complaints", "about itself", "empty records"],
)
def test_endless_talk_ends_with_the_time_for_the_head(start, gateway, protocol_fetcher, piece):
    stop, began = threading.Event(), threading.Event()

    def talk(connection: socket.socket) -> None:
        began.set()
        while not stop.is_set():
            connection.sendall(piece)

    try:
        with application(talk) as address:
            other = '[[sites.routes]]\nmatch = "/other"\nrespond = "x"\n'
            slow = f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], head_timeout = "1s" }}\n'
            gateway.write(SITE + other + slow)
            server = start(gateway.command())
            with ThreadPoolExecutor(1) as pool:
                waits = pool.submit(protocol_fetcher.fetch, server.origin + "/")
                assert began.wait(30)
                # The one worker has time for others.
                assert protocol_fetcher.fetch(server.origin + "/other").body == b"x"
                assert waits.result().status == 504
            assert server.resident_bytes() < 100 << 20
            stop.set()
    finally:
        stop.set()
