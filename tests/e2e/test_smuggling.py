"""HTTP request smuggling: no message is interpreted differently than by a strict parser.

The cases are in the package `smuggling`, each with the publication that it comes from.
"""

from __future__ import annotations

import re
import ssl
from contextlib import suppress
from random import Random

import pytest

from conftest import SEED
from harness.clients.h2_frames import ConnectionEndedError, H2Client, StreamResetError
from harness.clients.raw_h3 import RawH3, data
from harness.clients.tls import tls_connection
from harness.waiting import DEADLINE_SECONDS
from smuggling import (
    CASES,
    FIELD_CASES,
    MARKER_SIZE,
    Answer,
    Case,
    FieldCase,
    Message,
    answers,
    messages,
    mutated,
)
from smuggling.message import two_messages

MARKER = (
    f"GET /bytes/{MARKER_SIZE} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
)


def exchange(origin: str, ca, message: bytes, piece: int, behind: bytes = b"") -> list[Answer]:
    """Sends a message and the marker in pieces of a size; returns the responses until the server
    closes the connection.
    """
    connection = tls_connection(origin, ca, "http/1.1")
    connection.settimeout(DEADLINE_SECONDS)
    received = b""
    with connection:
        to_send = message + MARKER
        pieces = [to_send[at : at + piece] for at in range(0, len(to_send), piece)]
        for each in [*pieces, behind]:
            # A server that has rejected the message need not read the rest of it.
            try:
                connection.sendall(each)
            except OSError as error:
                assert not isinstance(error, TimeoutError)
                break
        with suppress(ConnectionResetError, ssl.SSLEOFError):
            while data := connection.recv(65536):
                received += data
    return answers(received)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_message_has_one_reading(shared_handler, ca, case: Case):
    got = exchange(shared_handler.origin, ca, case.message, len(case.message) + len(MARKER))
    assert case.verdict(got), got


# A parser of incomplete data must reach the same result as one that sees all of it at once.
SMALL_CASES = [case for case in CASES if len(case.message) < 1000]


@pytest.mark.parametrize("case", SMALL_CASES, ids=lambda case: case.name)
def test_message_sent_byte_by_byte_has_the_same_reading(shared_handler, ca, case: Case):
    got = exchange(shared_handler.origin, ca, case.message, 1)
    # The error response may be lost if the server closed the connection before the last byte was
    # sent.
    assert case.verdict(got) or not got, got


@pytest.mark.parametrize("case", FIELD_CASES, ids=lambda case: case.name)
def test_http2_request_that_would_split_is_rejected(shared_handler, ca, case: FieldCase):
    with H2Client(shared_handler.origin, ca) as client:
        stream = client.send_fields(case.fields(client.authority), case.content)
        try:
            status = client.finish(stream).status
        except (StreamResetError, ConnectionEndedError):
            status = None
    assert status is None or 400 <= status < 500


@pytest.mark.parametrize("case", FIELD_CASES, ids=lambda case: case.name)
def test_http3_request_that_would_split_is_rejected(shared_handler, ca, case: FieldCase):
    with RawH3(shared_handler.origin, ca) as h3:
        h3.open()
        stream = h3.request(
            case.fields(h3.authority), *([data(case.content)] if case.content else [])
        )
        if h3.error(stream) is None:
            status = h3.answer(stream).status
            assert 400 <= status < 500


# Ends whatever a message has left open: too long for a head, not a chunk, not a trailer, and longer
# than most lengths.
FILLER = b"\r\n\r\n" + b"x" * 200_000 + b"\r\n\r\n"
MUTATIONS = 400


def test_mutated_message_is_read_like_by_a_strict_parser(shared_handler, ca):
    random = Random(f"{SEED} smuggling")
    answered = 0
    for _ in range(MUTATIONS):
        message = mutated(random)
        got = exchange(shared_handler.origin, ca, message, len(message) + len(MARKER), FILLER)
        strict = messages(message + MARKER)
        for position, answer in enumerate(got):
            # The server may reject more than the strict parser, and stop there. Its responses must
            # match the parser's requests.
            if answer.status >= 400:
                continue
            assert position < len(strict), (message, got)
            assert is_answer_to(strict[position], answer), (message, got)
        answered += len(got)
    assert answered > MUTATIONS // 2, "hardly any message was accepted, so the test shows nothing"


def is_answer_to(message: Message, answer: Answer) -> bool:
    if message.method == b"HEAD":
        return answer.body == b""
    if found := re.search(rb"/bytes/(\d+)$", message.target):
        return len(answer.body) == int(found[1])
    # A message without an end is not echoed completely.
    return message.target.endswith(b"/echo") and answer.body == message.content is not None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_strict_parser_agrees_with_the_case(case: Case):
    # Checks the reference: it finds the inner request only in the cases that expect it.
    inner = any(message.target == b"/bytes/13" for message in messages(case.message))
    assert inner == (case.verdict is two_messages)


def test_number_of_cases_is_as_documented():
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len({case.message for case in CASES}) == len(CASES)
    assert all(case.source for case in CASES)
