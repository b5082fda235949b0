"""QPACK dynamic tables between the server and aioquic, which uses ls-qpack."""

from __future__ import annotations

import asyncio
import json

import pytest
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import FrameType, StreamType

from conftest import random_bytes
from harness.clients.aioquic_h3 import H3Client, h3_connection
from harness.response import sha256
from harness.waiting import eventually

AGENT = (
    "user-agent",
    "an agent with a name of some length, as browsers have them, and then some more of it",
)


class Recorded(H3Client):
    """Records the bytes of the server's encoder and decoder streams."""

    def uni_stream(self, stream_type: StreamType) -> bytes:
        streams = [
            bytes(seen) for seen in self._uni_streams.values() if seen and seen[0] == stream_type
        ]
        assert len(streams) <= 1, "a stream was opened twice"
        return streams[0][1:] if streams else b""


@pytest.fixture
def recorded(monkeypatch):
    monkeypatch.setattr("harness.clients.aioquic_h3.H3Client", Recorded)


async def test_server_inserts_repeated_fields_and_acknowledges_sections(handler, ca, recorded):
    async with h3_connection(handler.origin, ca) as client:
        for _ in range(10):
            response = await client.fetch("/headers?n=20", headers=[AGENT])
            assert response.status == 200
            assert sum(name.startswith("x-h-") for name, _ in response.headers) == 20
        inserted = client.uni_stream(StreamType.QPACK_ENCODER)
        # The capacity of 4096 bytes that aioquic allows, then an insertion for each of the twenty
        # fields.
        assert inserted.startswith(bytes([0x3F, 0xE1, 0x1F]))
        assert 20 * 4 < len(inserted) < 20 * 20
        # aioquic inserts as well: the server acknowledges sections (first bit set) of its streams.
        acknowledged = client.uni_stream(StreamType.QPACK_DECODER)
        assert any(byte & 0x80 for byte in acknowledged)


@pytest.mark.parametrize(
    ("limit", "capacity"), [("1KiB", b"\x3f\xe1\x07"), ("0", b"")], ids=["smaller", "none"]
)
async def test_table_of_the_client_is_used_up_to_the_limit(
    start_serve, ca, recorded, limit, capacity
):
    server = start_serve("--limit", f"qpack_encoder_table_bytes={limit}", "--stats")
    async with h3_connection(server.origin, ca) as client:
        for _ in range(5):
            assert (await client.fetch("/small.txt")).status == 200
        inserted = client.uni_stream(StreamType.QPACK_ENCODER)
        assert inserted[:3] == capacity
        assert (len(inserted) > 3) == bool(capacity)
    server.terminate()
    server.wait()
    # aioquic offers 4096 bytes.
    assert server.counters()["qpack_tables_reduced"] == 1


async def test_blocked_request_waits_with_its_upload(handler, ca):
    # Larger than the server's window for a stream: it cannot be received before the head is
    # decoded.
    body = random_bytes(4 << 20, "blocked")
    async with h3_connection(handler.origin, ca) as client:
        assert (await client.fetch("/headers?n=1")).status == 200
        quic, encoder_stream = client._quic, client.http._local_encoder_stream_id
        held = []
        send = quic.send_stream_data

        def hold_insertions(stream_id, data, end_stream=False):
            if stream_id == encoder_stream:
                held.append(data)
            else:
                send(stream_id, data, end_stream)

        quic.send_stream_data = hold_insertions
        # On a field line's second use, ls-qpack inserts it and refers to it at once.
        exchanges = []
        while not any(held):
            exchanges.append(
                client.start("/upload", method="POST", headers=[AGENT], body=body[: 1 << 10])
            )
            assert len(exchanges) < 10
        blocked = client.start("/upload", method="POST", headers=[AGENT], body=body)
        # Others are served meanwhile, and the blocked request gets no response.
        await asyncio.gather(*(client.finish(exchange) for exchange in exchanges[:-1]))
        # The server receives one window's worth of it and gives no more credit.
        stream = quic._streams[blocked.stream]
        await asyncio.to_thread(
            eventually,
            "no more credit",
            lambda: stream.sender.highest_offset == stream.max_stream_data_remote,
        )
        assert stream.sender.highest_offset < len(body)
        # The connection has some credit left, though aioquic ignores it: the insertions need it.
        assert quic._remote_max_data_used < quic._remote_max_data
        assert not blocked.done.done()
        quic.send_stream_data = send
        for data in held:
            send(encoder_stream, data)
        client.transmit()
        response = await client.finish(blocked)
        assert json.loads(response.body) == {"bytes": len(body), "sha256": sha256(body)}
        await asyncio.gather(*(client.finish(exchange) for exchange in exchanges))


async def test_reset_of_a_blocked_request_sends_a_stream_cancellation(handler, ca, recorded):
    async with h3_connection(handler.origin, ca) as client:
        assert (await client.fetch("/headers?n=1")).status == 200
        stream = client._quic.get_next_available_stream_id()
        # Required Insert Count 127 and one reference: aioquic inserts far less, so it blocks.
        section = bytes([0x80, 0x00, 0x80])
        frame = encode_uint_var(FrameType.HEADERS) + encode_uint_var(len(section)) + section
        client._quic.send_stream_data(stream, frame)
        client.transmit()
        assert (await client.fetch("/headers?n=1")).status == 200
        client._quic.reset_stream(stream, 0x10C)
        client.transmit()
        for _ in range(100):
            if bytes([0x40 | stream]) in client.uni_stream(StreamType.QPACK_DECODER):
                break
            assert (await client.fetch("/headers?n=1")).status == 200
        else:
            pytest.fail("no stream cancellation arrived")
