"""WebTransport sessions with aioquic, which implements draft 02."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import Buffer, BufferReadError, encode_uint_var
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import (
    DatagramReceived,
    DataReceived,
    HeadersReceived,
    WebTransportStreamDataReceived,
)
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import (
    ConnectionTerminated,
    QuicEvent,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)

from ..waiting import DEADLINE_SECONDS

CLOSE_SESSION = 0x2843
FIRST_APPLICATION_ERROR = 0x52E4A40FA8DB


def application_error(code: int) -> int:
    """Returns the code of a stream's reset for an application's code."""
    return FIRST_APPLICATION_ERROR + code + code // 0x1E


def capsule(kind: int, payload: bytes) -> bytes:
    return encode_uint_var(kind) + encode_uint_var(len(payload)) + payload


def close_capsule(code: int, reason: str) -> bytes:
    return capsule(CLOSE_SESSION, code.to_bytes(4, "big") + reason.encode())


@dataclass
class Stream:
    """Data received on a stream."""

    content: bytearray = field(default_factory=bytearray)
    is_over: bool = False
    reset: int | None = None
    stopped: int | None = None


class WebTransportClient(QuicConnectionProtocol):
    """One connection, on which a test opens sessions."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic, enable_webtransport=True)
        self.port = 0
        self.status: dict[int, int] = {}
        self.connects: dict[int, Stream] = defaultdict(Stream)
        self.streams: dict[int, Stream] = defaultdict(Stream)
        self.datagrams: list[tuple[int, bytes]] = []
        self.terminated: ConnectionTerminated | None = None
        self._own: set[int] = set()
        self._news = asyncio.Event()

    def quic_event_received(self, event: QuicEvent) -> None:
        match event:
            case ConnectionTerminated():
                self.terminated = event
            case StreamReset():
                self._of(event.stream_id).reset = event.error_code
            case StopSendingReceived():
                self._of(event.stream_id).stopped = event.error_code
            case StreamDataReceived() if event.stream_id in self._own:
                # The library parses the response as frames; there are none.
                self.streams[event.stream_id].content += event.data
                self.streams[event.stream_id].is_over |= event.end_stream
                self._news.set()
                return
        for http_event in self.http.handle_event(event):
            match http_event:
                case HeadersReceived():
                    self.status[http_event.stream_id] = int(dict(http_event.headers)[b":status"])
                    self.connects[http_event.stream_id].is_over = http_event.stream_ended
                case DataReceived():
                    self._add(self.connects[http_event.stream_id], http_event)
                case WebTransportStreamDataReceived():
                    self._add(self.streams[http_event.stream_id], http_event)
                case DatagramReceived():
                    self.datagrams.append((http_event.stream_id, http_event.data))
        self._news.set()

    def _of(self, stream: int) -> Stream:
        return self.connects[stream] if stream in self.connects else self.streams[stream]

    @staticmethod
    def _add(stream: Stream, event) -> None:
        stream.content += event.data
        stream.is_over |= event.stream_ended

    async def until(self, is_true) -> None:
        """Waits until the condition holds for the received data."""

        async def wait():
            while not is_true():
                assert self.terminated is None, self.terminated
                self._news.clear()
                await self._news.wait()

        await asyncio.wait_for(wait(), DEADLINE_SECONDS)

    def ask(self, path: str) -> int:
        """Requests a session; returns its number."""
        session = self._quic.get_next_available_stream_id()
        head = [
            (b":method", b"CONNECT"),
            (b":protocol", b"webtransport"),
            (b":scheme", b"https"),
            (b":authority", f"localhost:{self.port}".encode()),
            (b":path", path.encode()),
            (b"sec-webtransport-http3-draft02", b"1"),
        ]
        self.connects[session] = Stream()
        self.http.send_headers(session, head)
        self.transmit()
        return session

    async def session(self, path: str) -> int:
        session = self.ask(path)
        await self.until(lambda: session in self.status)
        assert self.status[session] == 200
        return session

    def open(self, session: int, *, uni: bool = False) -> int:
        stream = self.http.create_webtransport_stream(session, is_unidirectional=uni)
        self._own.add(stream)
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        self._quic.send_stream_data(stream, data, end_stream=end)
        self.transmit()

    def reset(self, stream: int, code: int) -> None:
        self._quic.reset_stream(stream, code)
        self.transmit()

    def stop(self, stream: int, code: int) -> None:
        self._quic.stop_stream(stream, code)
        self.transmit()

    def send_datagram(self, session: int, data: bytes) -> None:
        self.http.send_datagram(session, data)
        self.transmit()

    def send_raw_datagram(self, data: bytes) -> None:
        self._quic.send_datagram_frame(data)
        self.transmit()

    def send_content(self, session: int, data: bytes, *, end: bool = False) -> None:
        """Parses the capsules on the request's stream."""
        self.http.send_data(session, data, end_stream=end)
        self.transmit()

    def closed_with(self, session: int) -> tuple[int, str] | None:
        """Returns code and reason if the server has closed the session with a capsule."""
        buffer = Buffer(data=bytes(self.connects[session].content))
        try:
            while not buffer.eof():
                kind, length = buffer.pull_uint_var(), buffer.pull_uint_var()
                payload = buffer.pull_bytes(length)
                if kind == CLOSE_SESSION:
                    return int.from_bytes(payload[:4], "big"), payload[4:].decode()
        except BufferReadError:
            pass
        return None


@asynccontextmanager
async def webtransport(port: int, ca: Path) -> AsyncIterator[WebTransportClient]:
    configuration = QuicConfiguration(
        alpn_protocols=H3_ALPN, is_client=True, max_datagram_frame_size=65_536
    )
    configuration.load_verify_locations(str(ca))
    async with connect(
        "127.0.0.1",
        port,
        configuration=configuration,
        create_protocol=WebTransportClient,
        local_port=0,
    ) as client:
        client.port = port
        await client.until(lambda: client.http.received_settings is not None)
        yield client
