"""Interim responses: 103 before the final response, 100 before the content, 417 for unknown
expectations.
"""

from __future__ import annotations

import pytest

from harness.clients.h2_frames import H2Client
from harness.clients.raw_h1 import RawH1
from harness.clients.raw_h3 import RawH3, data
from harness.waiting import DEADLINE_SECONDS

HINT = "</style.css>; rel=preload; as=style"


def heads_h1(client: RawH1, message: bytes, count: int) -> list[str]:
    """Returns the status lines and fields of the next heads."""
    client.socket.settimeout(DEADLINE_SECONDS)
    client.socket.sendall(message)
    received = b""
    while received.count(b"\r\n\r\n") < count:
        piece = client.socket.recv(65536)
        assert piece, received
        received += piece
    return [head.decode() for head in received.split(b"\r\n\r\n")[:count]]


def test_early_hints_over_http1_precede_their_pipelined_response(handler, ca):
    with RawH1(handler.origin, ca) as client:
        get = f"GET /hints HTTP/1.1\r\nhost: {client.authority}\r\n\r\n".encode()
        heads = heads_h1(client, get * 3, 6)
    assert [head.split()[1].split()[0] for head in heads] == ["103", "200"] * 3
    assert all(f"link: {HINT}" in head for head in heads[::2])


def test_http1_0_client_gets_no_interim_response(handler, ca):
    with RawH1(handler.origin, ca) as client:
        heads = heads_h1(
            client, f"GET /hints HTTP/1.0\r\nhost: {client.authority}\r\n\r\n".encode(), 1
        )
    assert heads[0].split()[1] == "200"


def test_early_hints_over_http2(handler, ca):
    with H2Client(handler.origin, ca) as client:
        stream = client.start("/hints")
        assert client.finish(stream).status == 200
        assert [dict(head) for head in client.exchanges[stream].interim] == [
            {":status": "103", "link": HINT}
        ]


def test_early_hints_over_http3(handler, ca):
    with RawH3(handler.origin, ca) as h3:
        h3.open()
        answer = h3.fetch("/hints")
    assert (answer.interim, answer.status) == ([103], 200)
    assert dict(answer.heads[0])["link"] == HINT


def test_100_is_sent_over_http1_when_content_is_read(handler, ca):
    with RawH1(handler.origin, ca) as client:
        head = "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n"
        asked = heads_h1(client, head.format("/upload", client.authority).encode(), 1)
        assert asked == ["HTTP/1.1 100 Continue"]
        client.socket.sendall(b"hello")
        assert b'"bytes":5' in client.receive("POST").body
        # Answered without reading the content, so there is no 100.
        refused = heads_h1(client, head.format("/early", client.authority).encode(), 1)
        assert refused[0].split()[1] == "413"


def test_100_is_sent_over_http2_when_content_is_read(handler, ca):
    with H2Client(handler.origin, ca) as client:
        stream = client.start(
            "/upload", method="POST", headers=[("expect", "100-continue")], end=False
        )
        while not client.exchanges[stream].interim:
            assert client.read()
        client.http.send_data(stream, b"hello", end_stream=True)
        client.flush()
        assert b'"bytes":5' in client.finish(stream).body
        assert [dict(head)[":status"] for head in client.exchanges[stream].interim] == ["100"]


def test_100_is_sent_over_http3_when_content_is_read(handler, ca):
    with RawH3(handler.origin, ca) as h3:
        h3.open()
        stream = h3.request(h3.get("/upload", ("expect", "100-continue"), method="POST"), fin=False)
        h3.wait("an interim response", lambda: stream in h3.streams and h3.streams[stream].data)
        h3.write(stream, data(b"hello"), fin=True)
        answer = h3.answer(stream)
    assert (answer.interim, answer.status) == ([100], 200)
    assert b'"bytes":5' in answer.body


@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2", "HTTP/3"])
def test_unknown_expectation_is_417(handler, ca, protocol):
    field = ("expect", "a-miracle")
    if protocol == "HTTP/1.1":
        with RawH1(handler.origin, ca) as client:
            status = client.fetch("/headers", headers=[field]).status
    elif protocol == "HTTP/2":
        with H2Client(handler.origin, ca) as client:
            status = client.fetch("/headers", headers=[field]).status
    else:
        with RawH3(handler.origin, ca) as h3:
            h3.open()
            status = h3.fetch("/headers", field).status
    assert status == 417
