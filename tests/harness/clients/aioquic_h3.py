"""HTTP/3 with aioquic, with additions to its client: trailers, GOAWAY, resets, a pause."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import Buffer, BufferReadError
from aioquic.h3.connection import H3_ALPN, FrameType, H3Connection, StreamType
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, QuicEvent, StreamDataReceived, StreamReset

from ..response import Response
from ..waiting import DEADLINE_SECONDS


class ConnectionLostError(ConnectionError):
    """The connection ended before the response did."""

    def __init__(self, event: ConnectionTerminated):
        super().__init__(
            f"connection ended with code {event.error_code:#x}: {event.reason_phrase or 'no reason'}"
        )
        self.code = event.error_code


class StreamResetError(Exception):
    """The server reset the stream of a request."""

    def __init__(self, code: int):
        super().__init__(f"stream reset with code {code:#x}")
        self.code = code


@dataclass
class Exchange:
    """A request in progress, and the data received so far."""

    stream: int
    head: asyncio.Future
    done: asyncio.Future
    headers: list[tuple[bytes, bytes]] | None = None
    trailers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)

    def fail(self, error: Exception) -> None:
        for future in (self.head, self.done):
            if not future.done():
                future.set_exception(error)
                future.exception()  # Marked as seen: a test need not wait for both.

    def response(self) -> Response:
        text = [(name.decode(), value.decode("latin-1")) for name, value in self.headers]
        status = int(dict(text)[":status"])
        fields = [(name, value) for name, value in text if not name.startswith(":")]
        trailers = [(name.decode(), value.decode("latin-1")) for name, value in self.trailers]
        return Response.with_body(status, "HTTP/3", fields, bytes(self.body), trailers)


class HeadAware(H3Connection):
    """aioquic compares the content-length of a response to HEAD with its missing body; RFC 9110
    section 8.6 does not.
    """

    def __init__(self, quic: QuicConnection):
        super().__init__(quic)
        self.head_requests: set[int] = set()

    def _check_content_length(self, stream) -> None:
        if stream.stream_id not in self.head_requests:
            super()._check_content_length(stream)


class H3Client(QuicConnectionProtocol):
    """One connection."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = HeadAware(self._quic)
        self.authority = ""
        self.exchanges: dict[int, Exchange] = {}
        self.go_away_ids: list[int] = []
        self.go_away = asyncio.Event()
        self.terminated: ConnectionTerminated | None = None
        self._uni_streams: dict[int, bytearray] = {}
        self._held: list[tuple[bytes, tuple]] | None = None

    def start(
        self, path: str | bytes, *, method="GET", headers=(), body: bytes | None = None, trailers=()
    ) -> Exchange:
        """Sends a request; the path is sent as given."""
        loop = asyncio.get_running_loop()
        stream = self._quic.get_next_available_stream_id()
        exchange = Exchange(stream, loop.create_future(), loop.create_future())
        self.exchanges[stream] = exchange
        if method == "HEAD":
            self.http.head_requests.add(stream)
        head = [
            (b":method", method.encode()),
            (b":scheme", b"https"),
            (b":authority", self.authority.encode()),
            (b":path", path if isinstance(path, bytes) else path.encode()),
            *encoded(headers),
        ]
        self.http.send_headers(stream, head, end_stream=body is None and not trailers)
        if body is not None:
            self.http.send_data(stream, body, end_stream=not trailers)
        if trailers:
            self.http.send_headers(stream, encoded(trailers), end_stream=True)
        self.transmit()
        return exchange

    def start_fields(self, fields: list[tuple[bytes, bytes]]) -> Exchange:
        """Sends a request with exactly these fields, and leaves it open."""
        loop = self._loop
        stream = self._quic.get_next_available_stream_id()
        exchange = self.exchanges[stream] = Exchange(
            stream, loop.create_future(), loop.create_future()
        )
        self.http.send_headers(stream, fields)
        self.transmit()
        return exchange

    async def finish(self, exchange: Exchange) -> Response:
        await asyncio.wait_for(exchange.done, 2 * DEADLINE_SECONDS)
        return exchange.response()

    async def fetch(self, path: str | bytes, **asked) -> Response:
        return await self.finish(self.start(path, **asked))

    async def head(self, exchange: Exchange) -> None:
        """Waits for the head of the response."""
        await asyncio.wait_for(exchange.head, DEADLINE_SECONDS)

    def hold(self) -> None:
        """Stops receiving datagrams: to the server, the network is silent."""
        self._held = []

    def resume(self) -> None:
        held, self._held = self._held, None
        for data, address in held:
            super().datagram_received(data, address)

    async def rebind(self) -> None:
        """Continues from another port of this machine, as after a NAT rebinding."""
        address = self._transport.get_extra_info("sockname")
        self._transport.abort()
        port = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        port.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        port.bind(("::", 0))
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, sock=port)
        assert self._transport.get_extra_info("sockname") != address

    def vanish(self) -> None:
        """Vanishes: no close is sent, now or later."""
        self._transport.abort()
        self._transport = NoTransport()
        self._closed.set()

    async def wait_for_go_away(self) -> list[int]:
        await asyncio.wait_for(self.go_away.wait(), DEADLINE_SECONDS)
        return self.go_away_ids

    async def wait_terminated(self, seconds: float = DEADLINE_SECONDS) -> ConnectionTerminated:
        await asyncio.wait_for(self.wait_closed(), seconds)
        return self.terminated

    # Methods that aioquic calls.

    def datagram_received(self, data: bytes, addr) -> None:
        if self._held is not None:
            self._held.append((data, addr))
        else:
            super().datagram_received(data, addr)

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, ConnectionTerminated):
            self.terminated = event
            for exchange in self.exchanges.values():
                exchange.fail(ConnectionLostError(event))
            self.go_away.set()
        elif isinstance(event, StreamReset) and event.stream_id in self.exchanges:
            self.exchanges[event.stream_id].fail(StreamResetError(event.error_code))
        elif isinstance(event, StreamDataReceived) and event.stream_id % 4 == 3:
            self._read_uni_stream(event)
        for answer in self.http.handle_event(event):
            if (
                isinstance(answer, HeadersReceived | DataReceived)
                and answer.stream_id in self.exchanges
            ):
                self._take(self.exchanges[answer.stream_id], answer)

    def _take(self, exchange: Exchange, event: HeadersReceived | DataReceived) -> None:
        if isinstance(event, DataReceived):
            exchange.body += event.data or b""
        elif exchange.headers is None:
            if not dict(event.headers)[b":status"].startswith(b"1"):
                exchange.headers = event.headers
                exchange.head.set_result(None)
        else:
            exchange.trailers = event.headers
        if event.stream_ended:
            exchange.done.set_result(None)

    def _read_uni_stream(self, event: StreamDataReceived) -> None:
        """Parses GOAWAY frames: aioquic skips them, so the control stream is read here a second
        time.
        """
        seen = self._uni_streams.setdefault(event.stream_id, bytearray())
        seen += event.data
        buffer = Buffer(data=bytes(seen))
        try:
            if buffer.pull_uint_var() != StreamType.CONTROL:
                return
            identifiers = []
            while True:
                frame_type = buffer.pull_uint_var()
                payload = buffer.pull_bytes(buffer.pull_uint_var())
                if frame_type == FrameType.GOAWAY:
                    identifiers.append(Buffer(data=payload).pull_uint_var())
                self.go_away_ids = identifiers
                if identifiers:
                    self.go_away.set()
        except BufferReadError:
            return  # Incomplete.


class NoTransport:
    """Destination for datagrams of a vanished client."""

    def sendto(self, _data, _address) -> None:
        pass

    def close(self) -> None:
        pass


def encoded(fields) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in fields]


@asynccontextmanager
async def h3_connection(
    origin: str, ca: Path | None, *, idle_timeout: float = 60.0, **options
) -> AsyncIterator[H3Client]:
    """Opens a connection to the origin's host and port; `options` are fields of aioquic's
    QuicConfiguration.
    """
    url = urlsplit(origin)
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=H3_ALPN, idle_timeout=idle_timeout, **options
    )
    if ca is not None:
        configuration.load_verify_locations(cafile=str(ca))
    async with connect(
        url.hostname, url.port, configuration=configuration, create_protocol=H3Client
    ) as client:
        client.authority = url.netloc
        yield client


def fetch(url: str, *, ca: Path, method: str, headers, body: bytes | None) -> Response:
    async def run() -> Response:
        target = urlsplit(url)
        path = (target.path or "/") + (f"?{target.query}" if target.query else "")
        async with h3_connection(url, ca) as client:
            return await client.fetch(path, method=method, headers=headers, body=body)

    return asyncio.run(run())


async def ask_with_aioquic(
    origin: str,
    ca: Path,
    tickets: list,
    *,
    early: bool,
    server_name: str | None = "127.0.0.1",
    **asked,
):
    """Sends one request on a new connection, with one of the `tickets`.

    `early` sends it without waiting for the handshake. `/small.txt` must exist.
    """
    host, _, port = origin.removeprefix("https://").partition(":")
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=H3_ALPN, server_name=server_name
    )
    configuration.load_verify_locations(cafile=str(ca))
    configuration.session_ticket = tickets.pop() if tickets else None
    options = {"session_ticket_handler": tickets.append, "wait_connected": not early}
    async with connect(
        host, int(port), configuration=configuration, create_protocol=H3Client, **options
    ) as client:
        client.authority = f"{host}:{port}"
        answer = await client.fetch(asked.pop("path"), **asked)
        # Once the next response is here, the handshake is done and the tickets have arrived.
        await client.fetch("/small.txt")
        tls = client._quic.tls
        return answer, tls.session_resumed, tls.early_data_accepted
