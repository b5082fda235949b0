"""Misbehaving FastCGI applications behind `pronghorn run`: malformed, cut and endless output."""

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
        (b"", 502, "connection closed"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 502, "not FastCGI: invalid record version 72"),
        (output(HEAD[:5]), 502, "connection closed"),
        (end(), 502, "ended without a response"),
        (end(OVERLOADED), 502, "overloaded"),
        (end(UNKNOWN_ROLE), 502, "responder role"),
        (record(STDOUT, HEAD, request=2) + end(), 502, "record for unknown request 2"),
        (record(STDIN, HEAD) + end(), 502, "unexpected record type 5"),
        (record(END_REQUEST, b"short"), 502, "invalid end-request record: 5 bytes, expected 8"),
        (output(b"<html>no head at all</html>\n\n") + end(), 502, "invalid CGI response head"),
        (output(b"status: 100 Continue\n\n") + end(), 502, "invalid status: expected 200 to 599"),
        (
            output(b"content-length: 5\ncontent-length: 6\n\nhello") + end(),
            502,
            "invalid content-length",
        ),
        (
            output(b"content-length: 99999999999999999999\n\nhello") + end(),
            502,
            "invalid content-length",
        ),
        (output(b"X-Accel-Redirect: /files/a\n\n") + end(), 502, r"leaves .*\(x-accel-redirect\)"),
        (output(b"X-Sendfile: /srv/files/a\n\n") + end(), 502, r"leaves .*\(x-sendfile\)"),
        (
            output(*([b"a: " + b"b" * 1000 + b"\n"] * 70)) + output(b"\n") + end(),
            502,
            "more than 65536",
        ),
        (output(b"a: b\n" * 300 + b"\n") + end(), 502, "256 field lines"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_malformed_response_is_a_502(start, gateway, protocol_fetcher, answer, status, reason):
    with application(sent(answer)) as address:
        server, ask = fetch(start, gateway, protocol_fetcher, address)
        assert ask().status == status
        server.wait_for_lines(rf"{address}: GET .*{reason}")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (output(HEAD + b"half a page"), "connection closed"),
        (output(HEAD + b"half a page") + record(STDOUT, b"x" * 100)[:50], "connection closed"),
        (output(HEAD + b"half a page") + b"garbage!", "not FastCGI"),
        (output(HEAD + b"half a page") + end(OVERLOADED), "aborted the request"),
        (output(b"content-length: 100\n\nhalf a page") + end(), "shorter than its content-length"),
        (output(b"content-length: 5\n\nmore than that") + end(), "longer than its content-length"),
        (
            output(b"content-length: 5\n\nmore", b" than that") + end(),
            "longer than its content-length",
        ),
    ],
    ids=["closed", "in a record", "garbage", "given up", "short", "long", "long in pieces"],
)
def test_truncated_response_is_cut_off(start, gateway, protocol_fetcher, answer, reason):
    with application(sent(answer)) as address:
        server, ask = fetch(start, gateway, protocol_fetcher, address)
        with pytest.raises(Exception, match=r"."):
            ask()
        server.wait_for_lines(rf"{address}: GET .*{reason}.*; response cut off$")


@pytest.mark.parametrize(
    "answer",
    [
        b"".join(record(STDOUT, bytes([byte]), padding=255) for byte in HEAD + b"page") + end(),
        output(b"", HEAD, b"", b"page", b"") + end(),
        record(11, b"\xff" * 8, request=0)
        + output(HEAD + b"page")
        + record(10, b"", request=0)
        + end(),
        b"".join(record(STDERR, b"oh no\n" * 1000) for _ in range(200))
        + output(HEAD + b"page")
        + end(),
        output(HEAD + b"page") + end() + b"what comes after the end",
        output(
            b"transfer-encoding: chunked\nconnection: close, x-a\nkeep-alive: 5\n" + HEAD + b"page"
        )
        + end(),
    ],
    ids=[
        "byte by byte",
        "empty records",
        "about itself",
        "complaints",
        "after the end",
        "fields of connections",
    ],
)
def test_unusual_but_valid_response_is_complete(start, gateway, protocol_fetcher, answer):
    with application(sent(answer)) as address:
        _, ask = fetch(start, gateway, protocol_fetcher, address)
        page = ask()
        assert (page.status, page.body) == (200, b"page")
        assert page.header("keep-alive") is None


@pytest.mark.parametrize(
    "piece",
    [
        record(STDERR, b"oh no\n" * 10_000) * 10,
        record(11, b"x" * 60_000, request=0) * 10,
        output(b"") * 10_000,
    ],
    ids=["complaints", "about itself", "empty records"],
)
def test_endless_output_without_a_head_times_out(start, gateway, protocol_fetcher, piece):
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
                # The only worker still serves others.
                assert protocol_fetcher.fetch(server.origin + "/other").body == b"x"
                assert waits.result().status == 504
            assert server.resident_bytes() < 100 << 20
            stop.set()
    finally:
        stop.set()
