"""Clients that cause useless work over HTTP/3: the connection is closed, and others are served
meanwhile.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from harness.clients.aioquic_h3 import H3Client, h3_connection

H3_EXCESSIVE_LOAD = 0x107
H3_REQUEST_CANCELLED = 0x10C

ABORTED_REQUESTS = 500
USELESS_FRAMES = 1000
CONTROL_FRAMES = 1000


async def closes(client: H3Client, reason: str) -> None:
    ended = await client.wait_terminated()
    assert (ended.error_code, ended.reason_phrase) == (H3_EXCESSIVE_LOAD, reason)


def reset_rapidly(client: H3Client) -> None:
    """Sends a request and cancels it at once (CVE-2023-44487)."""
    stream = client.start("/medium.bin").stream
    client._quic.stop_stream(stream, H3_REQUEST_CANCELLED)
    client.transmit()


def make_reset(client: H3Client) -> None:
    """Sends a request that the server must reset (CVE-2025-8671): more content than announced."""
    client.start("/small.txt", method="POST", headers=[("content-length", "1")], body=b"ab")


@pytest.mark.parametrize("abort", [reset_rapidly, make_reset])
async def test_aborted_requests_over_the_limit_close_the_connection(server, ca, abort):
    async with (
        h3_connection(server.origin, ca) as client,
        h3_connection(server.origin, ca) as honest,
    ):
        aborted = 0
        while client.terminated is None and aborted < 4 * ABORTED_REQUESTS:
            abort(client)
            aborted += 1
            if aborted % 20 == 0:
                # The server answers, or has closed the connection.
                with suppress(ConnectionError):
                    await client.ping()
        await closes(client, "too many aborted requests")
        assert aborted >= ABORTED_REQUESTS
        assert (await honest.fetch("/small.txt")).status == 200


@pytest.mark.parametrize(
    ("flood", "reason"),
    [
        pytest.param(
            b"\x21\x00" * (2 * USELESS_FRAMES),
            "too many unknown or empty frames",
            id="unknown frames",
        ),
        pytest.param(
            b"\x00\x00" * (2 * USELESS_FRAMES),
            "too many unknown or empty frames",
            id="empty DATA frames",
        ),
        pytest.param(
            b"\x21\x80\x20\x00\x00",
            "too many bytes in unknown frames and streams",
            id="2 MiB announced",
        ),
    ],
)
async def test_useless_frames_close_the_connection(handler, ca, flood, reason):
    async with (
        h3_connection(handler.origin, ca) as client,
        h3_connection(handler.origin, ca) as honest,
    ):
        stream = client._quic.get_next_available_stream_id()
        head = [
            (b":method", b"POST"),
            (b":scheme", b"https"),
            (b":authority", client.authority.encode()),
            (b":path", b"/echo"),
        ]
        client.http.send_headers(stream, head)
        client._quic.send_stream_data(stream, flood)
        client.transmit()
        await closes(client, reason)
        assert (await honest.fetch("/bytes/10")).status == 200


async def test_control_frames_over_the_limit_close_the_connection(server, ca):
    async with (
        h3_connection(server.origin, ca) as client,
        h3_connection(server.origin, ca) as honest,
    ):
        # MAX_PUSH_ID with the number that the library has already sent, repeatedly.
        client._quic.send_stream_data(
            client.http._local_control_stream_id, b"\x0d\x01\x08" * (2 * CONTROL_FRAMES)
        )
        client.transmit()
        await closes(client, "too many frames on the control stream")
        assert (await honest.fetch("/small.txt")).status == 200


async def test_cancelled_requests_below_the_limit_leave_the_connection_usable(server, ca):
    async with h3_connection(server.origin, ca) as client:
        for _ in range(ABORTED_REQUESTS // 20):
            for _ in range(10):
                reset_rapidly(client)
            responses = [client.start("/small.txt") for _ in range(10)]
            done = await asyncio.gather(*(client.finish(each) for each in responses))
            assert {response.status for response in done} == {200}
        assert client.terminated is None
