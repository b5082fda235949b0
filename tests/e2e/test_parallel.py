"""Many requests on one connection."""

from __future__ import annotations

import asyncio
import json

import pytest

from conftest import random_bytes
from harness.clients import curl
from harness.clients.aioquic_h3 import h3_connection
from harness.clients.go import GoClient
from harness.clients.h2_frames import H2Client
from harness.response import sha256

REQUESTS = 100


@pytest.mark.parametrize("version", ["2", "3"])
def test_hundred_parallel_requests_of_go_share_a_connection(server, site, ca, version):
    with GoClient(version, ca) as client:
        # The first request opens the connection that the others reuse.
        assert client.fetch(f"{server.origin}/small.txt").status == 200
        done = client.round(f"{server.origin}/medium.bin", count=REQUESTS)
    assert done.errors == []
    assert done.connections == 1
    assert {response.sha256 for response in done.responses} == {sha256(site.read("medium.bin"))}
    assert len(done.responses) == REQUESTS


async def test_hundred_parallel_requests_of_aioquic_share_a_connection(server, site, ca):
    async with h3_connection(server.origin, ca) as client:
        paths = ["/small.txt", "/medium.bin", "/missing", "/sub/page.html"] * (REQUESTS // 4)
        exchanges = [client.start(path) for path in paths]
        responses = await asyncio.gather(*(client.finish(exchange) for exchange in exchanges))
    for path, response in zip(paths, responses, strict=True):
        if path == "/missing":
            assert response.status == 404
        else:
            assert (response.status, response.body) == (200, site.read(path))


def test_hundred_parallel_requests_of_h2_are_all_open_at_once(server, site, ca):
    with H2Client(server.origin, ca) as client:
        # Nothing is read between the requests, so all are open before one can complete.
        streams = [client.start("/medium.bin") for _ in range(REQUESTS)]
        responses = [client.finish(stream) for stream in streams]
    assert {(response.status, response.sha256) for response in responses} == {
        (200, sha256(site.read("medium.bin")))
    }


@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2", "HTTP/3"])
def test_hundred_sequential_requests_share_a_connection(server, site, ca, protocol):
    ports = set()
    with curl.session(ca) as session:
        for _ in range(REQUESTS):
            response = curl.ask(session, protocol, f"{server.origin}/small.txt")
            assert (response.status, response.body) == (200, site.read("small.txt"))
            assert response.protocol == protocol
            ports.add(response.local_port)
    assert len(ports) == 1


@pytest.mark.parametrize("version", ["2", "3"])
def test_uploads_and_downloads_run_in_parallel(handler, ca, version):
    body = random_bytes(1 << 20, "side by side")
    with GoClient(version, ca) as client:
        client.fetch(f"{handler.origin}/headers?n=1")
        echoed = client.round(f"{handler.origin}/echo", method="POST", body=body, count=16)
        uploaded = client.round(f"{handler.origin}/upload", method="POST", body=body, count=16)
    assert (echoed.errors, uploaded.errors) == ([], [])
    assert {response.sha256 for response in echoed.responses} == {sha256(body)}
    assert {json.loads(response.text())["sha256"] for response in uploaded.responses} == {
        sha256(body)
    }
    assert uploaded.connections == 1


async def test_stalled_stream_does_not_stall_another(server, site, ca):
    # One stream's window stays closed: flow control is per stream (RFC 9000 section 4), so the
    # other must finish.
    async with h3_connection(server.origin, ca) as client:
        grow = client._quic._write_stream_limits
        stalled = client.start("/big.bin")

        def grow_others(*, builder, space, stream):
            if stream.stream_id != stalled.stream:
                grow(builder=builder, space=space, stream=stream)

        client._quic._write_stream_limits = grow_others
        await client.head(stalled)
        for _ in range(20):
            assert (await client.fetch("/medium.bin")).body == site.read("medium.bin")
        assert not stalled.done.done()


# //= RFC 9114 section 6.2
# //# Therefore, the transport parameters sent by both clients and servers MUST allow the peer to
# //# create at least
# //# three unidirectional streams.
async def test_client_may_open_the_streams_that_http3_needs(server, ca):
    async with h3_connection(server.origin, ca) as client:
        assert client._quic._remote_max_streams_uni >= 3
