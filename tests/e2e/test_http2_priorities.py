"""RFC 9218 over HTTP/2: order of responses, by each signal that clients send, with an independent
client.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded

SIZE = 4 << 20
URGENT_SIZE = 300_000
OTHERS = 6
PRIORITY_UPDATE = 16
"""RFC 9218 section 7.1."""
COMMITTED = 640 << 10
"""Bytes of other responses before the urgent one: buffered by the server's libraries and kernel, in
flight, or unread here.
"""


@dataclass
class Client:
    """A connection with windows that never limit, and a receive buffer that does."""

    origin: str
    ca: str
    bytes_of: dict[int, int] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    before: dict[int, int] = field(default_factory=dict)
    """By stream, the bytes of all streams received before its head."""

    def __enter__(self) -> Client:
        host, port = self.origin.removeprefix("https://").rsplit(":", 1)
        self.host = self.origin.removeprefix("https://")
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        plain.settimeout(60)
        plain.connect((host, int(port)))
        context = ssl.create_default_context(cafile=self.ca)
        context.set_alpn_protocols(["h2"])
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        self.http = H2Connection()
        self.http.initiate_connection()
        self.http.update_settings({4: (1 << 31) - 1})
        self.http.increment_flow_control_window((1 << 31) - 1 - (1 << 16))
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def flush(self, more: bytes = b"") -> None:
        self.socket.sendall(self.http.data_to_send() + more)

    def get(self, size: int, priority: str | None = None, **legacy: int | bool) -> int:
        stream = self.http.get_next_available_stream_id()
        fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", self.host),
            (":path", f"/bytes/{size}"),
        ]
        fields += [("priority", priority)] if priority is not None else []
        self.http.send_headers(stream, fields, end_stream=True, **legacy)
        return stream

    def read_until(self, done: Callable[[], bool]) -> None:
        while not done():
            data = self.socket.recv(16 << 10)
            assert data, "the server has closed the connection"
            for event in self.http.receive_data(data):
                if isinstance(event, DataReceived):
                    self.bytes_of[event.stream_id] = self.bytes_of.get(event.stream_id, 0) + len(
                        event.data
                    )
                if isinstance(event, ResponseReceived):
                    self.before[event.stream_id] = sum(self.bytes_of.values())
                if isinstance(event, StreamEnded):
                    self.ended.append(event.stream_id)

    def update(self, stream: int, value: str) -> bytes:
        content = stream.to_bytes(4, "big") + value.encode()
        return len(content).to_bytes(3, "big") + bytes([PRIORITY_UPDATE, 0]) + bytes(4) + content


def others_before(
    client: Client, urgent: Callable[[], tuple[int, bytes]], priority: str | None = None, **legacy
) -> int:
    """Returns the bytes of six large responses that arrive between the head and the end of another
    one, requested during them.

    The head is sent at once: bytes before it are what the server had sent before it read the
    request.
    """
    for _ in range(OTHERS):
        client.get(SIZE, priority, **legacy)
    client.flush()
    client.read_until(lambda: sum(client.bytes_of.values()) > 1 << 20)
    stream, more = urgent()
    client.flush(more)
    client.read_until(lambda: stream in client.ended)
    assert client.bytes_of[stream] == URGENT_SIZE
    return sum(client.bytes_of.values()) - URGENT_SIZE - client.before[stream]


@pytest.fixture
def client(handler, ca):
    with Client(handler.origin, str(ca)) as client:
        yield client


def test_urgent_response_overtakes_running_ones(client):
    assert (
        others_before(client, lambda: (client.get(URGENT_SIZE, "u=0"), b""), "u=4, i") < COMMITTED
    )


def test_priority_update_before_its_request_counts(client):
    def urgent() -> tuple[int, bytes]:
        early = client.update(client.http.get_next_available_stream_id(), "u=1")
        client.flush(early)
        return client.get(URGENT_SIZE, "u=6"), b""

    assert others_before(client, urgent, "u=4, i") < COMMITTED


def test_priority_update_reorders_running_responses(client):
    def urgent() -> tuple[int, bytes]:
        stream = client.get(URGENT_SIZE, "u=6, i")
        return stream, client.update(stream, "u=1")

    assert others_before(client, urgent, "u=4, i") < COMMITTED


def test_chromium_weights_order_responses(client):
    """Chromium's requests before it sent the field: each depends exclusively on another one."""

    def urgent() -> tuple[int, bytes]:
        return client.get(
            URGENT_SIZE, priority_weight=256, priority_depends_on=0, priority_exclusive=True
        ), b""

    images = {"priority_weight": 110, "priority_depends_on": 0, "priority_exclusive": True}
    assert others_before(client, urgent, **images) < COMMITTED


def test_priority_frame_reorders_running_responses(client):
    """Chromium sends it when an image scrolls into view."""

    def urgent() -> tuple[int, bytes]:
        stream = client.get(URGENT_SIZE, "u=5, i")
        client.http.prioritize(stream, weight=220, depends_on=0, exclusive=True)
        return stream, b""

    assert others_before(client, urgent, "u=4, i") < COMMITTED


def test_responses_without_a_priority_share_the_connection(client):
    """Behind a gateway they may be of different users."""
    seen = others_before(client, lambda: (client.get(URGENT_SIZE), b""))
    assert OTHERS * URGENT_SIZE * 0.5 < seen < OTHERS * URGENT_SIZE * 1.5 + COMMITTED
    shares = [client.bytes_of[stream] for stream in client.bytes_of if stream not in client.ended]
    assert min(shares) > 0.5 * max(shares), shares


def test_non_incremental_responses_are_sent_one_after_the_other(client):
    first, second = client.get(SIZE, "u=2"), client.get(SIZE, "u=2")
    client.flush()
    client.read_until(lambda: first in client.ended)
    assert client.bytes_of.get(second, 0) < COMMITTED
