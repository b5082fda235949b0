"""RFC 9218 over HTTP/3: order of responses, with an independent client."""

from __future__ import annotations

from aioquic.buffer import encode_uint_var

from harness.clients.aioquic_h3 import Exchange, H3Client, h3_connection

SIZE = 8 << 20
PRIORITY_UPDATE_REQUEST = 0xF0700
"""RFC 9218 section 7.2."""


def start(client: H3Client, priority: str | None, size: int = SIZE) -> Exchange:
    headers = [] if priority is None else [("priority", priority)]
    return client.start(f"/bytes/{size}", headers=headers)


def update_priority(client: H3Client, exchange: Exchange, value: str) -> None:
    payload = encode_uint_var(exchange.stream) + value.encode()
    frame = encode_uint_var(PRIORITY_UPDATE_REQUEST) + encode_uint_var(len(payload)) + payload
    client._quic.send_stream_data(client.http._local_control_stream_id, frame)
    client.transmit()


async def share_at_the_end_of(client: H3Client, first: Exchange, other: Exchange) -> float:
    """Returns the fraction of `other` received when `first` was complete: measures order,
    independent of time.
    """
    seen = []
    first.done.add_done_callback(lambda _done: seen.append(len(other.body) / SIZE))
    for exchange in (first, other):
        response = await client.finish(exchange)
        assert (response.status, response.size) == (200, SIZE)
    return seen[0]


async def test_urgent_response_overtakes_a_running_one(handler, ca):
    async with h3_connection(handler.origin, ca) as client:
        low = start(client, "u=6")
        await client.head(low)
        high = start(client, "u=1")
        assert await share_at_the_end_of(client, high, low) < 0.5


async def test_non_incremental_responses_are_sent_one_after_the_other(handler, ca):
    async with h3_connection(handler.origin, ca) as client:
        first, second = start(client, None), start(client, None)
        assert await share_at_the_end_of(client, first, second) < 0.5


async def test_incremental_responses_share_the_connection(handler, ca):
    async with h3_connection(handler.origin, ca) as client:
        first, second = start(client, "u=3, i"), start(client, "u=3, i")
        assert await share_at_the_end_of(client, first, second) > 0.5


async def test_priority_update_reorders_running_responses(handler, ca):
    async with h3_connection(handler.origin, ca) as client:
        first, second = start(client, None), start(client, None)
        await client.head(first)
        update_priority(client, second, "u=0")
        assert await share_at_the_end_of(client, second, first) < 0.5


async def test_priority_update_before_its_request_counts(handler, ca):
    async with h3_connection(handler.origin, ca) as client:
        first = start(client, None)
        later = Exchange(first.stream + 4, None, None)
        update_priority(client, later, "u=0")
        second = start(client, "u=7")
        assert second.stream == later.stream
        assert await share_at_the_end_of(client, second, first) < 0.5
