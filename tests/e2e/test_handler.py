"""The engine with a request handler: many header fields, uploads, and bodies and trailers in both
directions.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re

import pytest

from conftest import random_bytes
from harness.clients.aioquic_h3 import h3_connection
from harness.clients.go import GoClient
from harness.clients.h2_frames import H2Client
from harness.clients.raw_h1 import RawH1
from harness.response import sha256
from harness.waiting import eventually

MIB = 1 << 20


def test_forty_response_headers_arrive(handler, fetcher):
    response = fetcher.fetch(f"{handler.origin}/headers?n=40")
    assert response.status == 200
    names = [name for name, _ in response.headers if re.fullmatch(r"x-h-\d+", name)]
    assert sorted(names) == sorted(f"x-h-{index}" for index in range(40))
    assert all(value for name, value in response.headers if name in names)


@pytest.mark.parametrize("size", [0, 1, 65_536, 5 * MIB])
def test_upload_arrives_byte_for_byte(handler, fetcher, size):
    body = random_bytes(size, "upload")
    response = fetcher.fetch(f"{handler.origin}/upload", method="POST", body=body)
    assert response.status == 200
    assert json.loads(response.text()) == {"bytes": size, "sha256": sha256(body)}


def test_body_is_echoed_during_the_upload(handler, fetcher):
    # Larger than any window: it can only get through if the response is sent while the request
    # still arrives.
    body = random_bytes(3 * MIB, "echo")
    response = fetcher.fetch(f"{handler.origin}/echo", method="POST", body=body)
    assert (response.status, response.size, response.sha256) == (200, len(body), sha256(body))


@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_upload_of_unknown_length_arrives(handler, ca, version):
    body = random_bytes(MIB, "unknown length")
    with GoClient(version, ca) as client:
        response = client.fetch(
            f"{handler.origin}/upload", method="POST", body=body, body_length_unknown=True
        )
    assert json.loads(response.text()) == {"bytes": MIB, "sha256": sha256(body)}


@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_response_trailers_arrive(handler, ca, version):
    with GoClient(version, ca) as client:
        # TE says that trailers are accepted (RFC 9110 section 10.1.4); over HTTP/1.1 a server may
        # require it.
        response = client.fetch(f"{handler.origin}/trailers", headers=[("te", "trailers")])
    assert response.status == 200
    assert response.size > 0
    assert dict(response.trailers)["x-checksum"]


async def test_response_trailers_arrive_at_aioquic(handler, ca):
    async with h3_connection(handler.origin, ca) as client:
        response = await client.fetch("/trailers", headers=[("te", "trailers")])
    assert response.size > 0
    assert dict(response.trailers)["x-checksum"]


@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_request_trailers_are_echoed_as_response_trailers(handler, ca, version):
    body = random_bytes(100_000, "trailers")
    trailers = [("x-first", "one"), ("x-checksum", hashlib.sha256(body).hexdigest())]
    with GoClient(version, ca) as client:
        response = client.fetch(
            f"{handler.origin}/echo",
            method="POST",
            body=body,
            trailers=trailers,
            headers=[("te", "trailers")],
        )
    assert (response.status, response.sha256) == (200, sha256(body))
    assert set(trailers) <= set(response.trailers)


async def test_request_trailers_of_aioquic_are_echoed(handler, ca):
    trailers = [("x-first", "one"), ("x-second", "two")]
    async with h3_connection(handler.origin, ca) as client:
        response = await client.fetch(
            "/echo", method="POST", body=b"body", trailers=trailers, headers=[("te", "trailers")]
        )
    assert response.body == b"body"
    assert response.trailers == trailers


# //= RFC 9114 section 4.1
# //# After sending a final response, the server MUST close the stream for sending.
@pytest.mark.parametrize("size", [0, 1, 16_384, 10 * MIB])
def test_streamed_body_arrives_complete(handler, fetcher, size):
    response = fetcher.fetch(f"{handler.origin}/bytes/{size}")
    assert (response.status, response.size) == (200, size)


def test_head_of_a_streamed_body_has_no_content(handler, protocol_fetcher):
    response = protocol_fetcher.fetch(f"{handler.origin}/bytes/1000", method="HEAD")
    assert (response.status, response.size) == (200, 0)


def test_response_before_the_upload_is_read_arrives(handler, fetcher):
    # RFC 9110 section 15.5.14: 413 means that the server does not accept the content, so it comes
    # before the end.
    response = fetcher.fetch(
        f"{handler.origin}/early", method="POST", body=random_bytes(5 * MIB, "early")
    )
    assert response.status == 413


@pytest.mark.parametrize("version", ["2", "3"])
def test_early_response_leaves_the_connection_usable(handler, ca, version):
    with GoClient(version, ca) as client:
        for _ in range(3):
            done = client.round(
                f"{handler.origin}/early", method="POST", body=random_bytes(MIB, "early")
            )
            assert [response.status for response in done.responses] == [413], done.errors
        assert client.round(f"{handler.origin}/headers?n=1").connections == 1


def answered_early(client: H2Client) -> int:
    """Yields a POST whose content has not ended, with its response."""
    stream = client.start("/early", method="POST", end=False)
    client.finish(stream)
    return stream


def test_upload_that_ends_after_an_early_response_is_not_reset(handler, ca):
    # RFC 9113 section 8.1: a server "MAY request that the client abort transmission of a request
    # without error". If the end is in flight, a reset would only make the client doubt the
    # response.
    with H2Client(handler.origin, ca) as client:
        stream = answered_early(client)
        client.http.send_data(stream, random_bytes(10_000, "early"), end_stream=True)
        client.flush()
        assert client.fetch("/headers?n=1").status == 200
        assert client.exchanges[stream].reset is None


def test_upload_that_continues_after_an_early_response_is_stopped(handler, ca):
    with H2Client(handler.origin, ca) as client:
        stream = answered_early(client)
        sent, piece = 0, random_bytes(16_000, "early")
        while client.exchanges[stream].reset is None and sent < MIB:
            client.http.send_data(stream, piece)
            sent += len(piece)
            client.http.ping(b"take in.")
            client.flush()
            client.read()
        while client.exchanges[stream].reset is None:
            client.read()
        no_error = 0
        assert client.exchanges[stream].reset == no_error
        assert client.fetch("/headers?n=1").status == 200


async def give_up_h3(origin: str, ca) -> None:
    h3_request_cancelled = 0x10C
    async with h3_connection(origin, ca) as client:
        waiting = client.start("/wait")
        await client.ping()
        client._quic.stop_stream(waiting.stream, h3_request_cancelled)
        client.transmit()
        await client.ping()


def give_up_h2(origin: str, ca) -> None:
    with H2Client(origin, ca) as client:
        stream = client.start("/wait")
        client.http.reset_stream(stream)
        client.flush()
        # A response on the same connection shows that the server has read the reset.
        assert client.fetch("/headers?n=1").status == 200


def give_up_h1(origin: str, ca) -> None:
    with RawH1(origin, ca) as client:
        client.socket.sendall(f"GET /wait HTTP/1.1\r\nhost: {client.authority}\r\n\r\n".encode())


@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2", "HTTP/3"])
def test_handler_is_notified_when_its_client_cancels(handler, ca, protocol):
    if protocol == "HTTP/3":
        asyncio.run(give_up_h3(handler.origin, ca))
    elif protocol == "HTTP/2":
        give_up_h2(handler.origin, ca)
    else:
        give_up_h1(handler.origin, ca)
    with GoClient("2", ca) as client:
        eventually(
            "the handler is notified", lambda: client.fetch(f"{handler.origin}/gone").text() == "1"
        )


def test_unknown_route_is_404_and_the_connection_stays_open(handler, ca):
    for version in ("1.1", "2", "3"):
        with GoClient(version, ca) as client:
            assert client.fetch(f"{handler.origin}/no/such/route").status == 404
            assert client.round(f"{handler.origin}/headers?n=1").connections == 1
