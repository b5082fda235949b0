"""Hand-written WebSocket over the three protocols: a test sends any frames, and reads the
responses.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..waiting import DEADLINE_SECONDS
from .aioquic_h3 import StreamResetError, h3_connection
from .h2_frames import Exchange, H2Client
from .raw_h1 import RawH1

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA


@dataclass(frozen=True)
class Frame:
    opcode: int
    payload: bytes = b""
    fin: bool = True
    rsv: int = 0

    def encode(self) -> bytes:
        """Encodes the frame as a client does."""
        length = len(self.payload)
        if length < 126:
            size = bytes([0x80 | length])
        elif length < 1 << 16:
            size = b"\xfe" + struct.pack("!H", length)
        else:
            size = b"\xff" + struct.pack("!Q", length)
        mask = os.urandom(4)
        key = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
        masked = (int.from_bytes(self.payload, "big") ^ key).to_bytes(length, "big")
        return bytes([self.fin << 7 | self.rsv << 4 | self.opcode]) + size + mask + masked


def close_frame(code: int | None = 1000, reason: bytes = b"") -> Frame:
    return Frame(CLOSE, b"" if code is None else struct.pack("!H", code) + reason)


class WebSocketWire:
    """An open connection; each protocol implements sending and receiving bytes."""

    def __init__(self):
        self.headers: dict[str, str] = {}
        self._unread = bytearray()
        self.reset = False

    def send_bytes(self, data: bytes) -> None:
        raise NotImplementedError

    def receive_bytes(self) -> bytes:
        """Returns the next bytes; empty at the end."""
        raise NotImplementedError

    def send(self, frames: Iterable[Frame], chop: int | None = None) -> None:
        """Sends frames, together or in pieces of `chop` bytes."""
        data = b"".join(frame.encode() for frame in frames)
        for start in range(0, len(data), chop or max(1, len(data))):
            self.send_bytes(data[start : start + (chop or len(data))])

    def frames(self) -> Iterator[Frame]:
        """Returns the server's frames until its end."""
        while True:
            while (frame := self._take()) is not None:
                yield frame
            piece = self.receive_bytes()
            if not piece:
                assert not self._unread, "the connection ended in the middle of a frame"
                return
            self._unread += piece

    def _take(self) -> Frame | None:
        data = self._unread
        if len(data) < 2:
            return None
        assert not data[1] & 0x80, "the server masked a frame"
        length, start = data[1], 2
        if length == 126:
            if len(data) < 4:
                return None
            length, start = struct.unpack_from("!H", data, 2)[0], 4
        elif length == 127:
            if len(data) < 10:
                return None
            length, start = struct.unpack_from("!Q", data, 2)[0], 10
        if len(data) < start + length:
            return None
        frame = Frame(
            data[0] & 0xF,
            bytes(data[start : start + length]),
            bool(data[0] & 0x80),
            data[0] >> 4 & 7,
        )
        del data[: start + length]
        return frame


class Http1Wire(WebSocketWire):
    def __init__(self, raw: RawH1, path: str, headers):
        super().__init__()
        self.socket = raw.socket
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {raw.authority}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            *(f"{name}: {value}" for name, value in headers),
        ]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        head = bytearray()
        while b"\r\n\r\n" not in head:
            piece = self.socket.recv(65536)
            assert piece, "the server closed the connection"
            head += piece
        head, _, rest = bytes(head).partition(b"\r\n\r\n")
        self._unread += rest
        status, *fields = head.decode().split("\r\n")
        assert status.startswith("HTTP/1.1 101"), status
        self.headers = {
            name.lower(): value for name, _, value in (field.partition(": ") for field in fields)
        }

    def send_bytes(self, data: bytes) -> None:
        # After the server has closed the connection, its earlier data can still be read.
        with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            self.socket.sendall(data)

    def receive_bytes(self) -> bytes:
        try:
            return self.socket.recv(65536)
        except (ConnectionResetError, ssl.SSLEOFError):
            self.reset = True
            return b""


def _extended_connect(authority: str, path: str, headers) -> list[tuple[str, str]]:
    return [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", authority),
        (":path", path),
        ("sec-websocket-version", "13"),
        *((name.lower(), value) for name, value in headers),
    ]


class Http2Wire(WebSocketWire):
    def __init__(self, client: H2Client, path: str, headers):
        super().__init__()
        self.client = client
        while not client.http.remote_settings.enable_connect_protocol:
            assert client.read(), "the server offers no extended CONNECT"
        self.stream = client.http.get_next_available_stream_id()
        self.exchange = client.exchanges[self.stream] = Exchange()
        client.http.send_headers(self.stream, _extended_connect(client.authority, path, headers))
        client.flush()
        while self.exchange.headers is None:
            assert client.read(), "the server closed the connection"
        self.headers = dict(self.exchange.headers)
        assert self.headers[":status"] == "200", self.headers

    def send_bytes(self, data: bytes) -> None:
        http = self.client.http
        while data:
            if self.exchange.ended or self.exchange.reset is not None:
                return
            window = min(http.local_flow_control_window(self.stream), http.max_outbound_frame_size)
            if window <= 0:
                if not self.client.read():
                    return
                continue
            http.send_data(self.stream, data[:window])
            data = data[window:]
            self.client.flush()

    def receive_bytes(self) -> bytes:
        while not self.exchange.body:
            if self.exchange.reset is not None:
                self.reset = True
                return b""
            if self.exchange.ended or not self.client.read():
                return b""
        data = bytes(self.exchange.body)
        self.exchange.body.clear()
        return data


class Http3Wire(WebSocketWire):
    def __init__(self, client, loop: asyncio.AbstractEventLoop, path: str, headers):
        super().__init__()
        self.client, self.loop = client, loop
        self._run(self._settings())
        head = _extended_connect(client.authority, path, headers)
        self.exchange = client.start_fields(
            [(name.encode(), value.encode()) for name, value in head]
        )
        self._run(client.head(self.exchange))
        self.headers = {name.decode(): value.decode() for name, value in self.exchange.headers}
        assert self.headers[":status"] == "200", self.headers

    def _run(self, coroutine):
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, DEADLINE_SECONDS))

    async def _settings(self) -> None:
        while self.client.http.received_settings is None:
            await asyncio.sleep(0.001)
        assert self.client.http.received_settings.get(0x08) == 1, (
            "the server offers no extended CONNECT"
        )

    def send_bytes(self, data: bytes) -> None:
        if self.exchange.done.done():
            return
        self.client.http.send_data(self.exchange.stream, data, end_stream=False)
        self.client.transmit()
        self.loop.run_until_complete(asyncio.sleep(0))

    async def _more(self) -> None:
        while not self.exchange.body and not self.exchange.done.done():
            await asyncio.sleep(0.001)

    def receive_bytes(self) -> bytes:
        self._run(self._more())
        data = bytes(self.exchange.body)
        self.exchange.body.clear()
        if not data and self.exchange.done.exception() is not None:
            assert isinstance(self.exchange.done.exception(), StreamResetError)
            self.reset = True
        return data


@contextmanager
def open_websocket(
    version: str, origin: str, ca: Path, path: str = "/ws", headers=()
) -> Iterator[WebSocketWire]:
    """Opens a WebSocket connection over HTTP/1.1, HTTP/2 or HTTP/3."""
    if version == "1.1":
        with RawH1(origin, ca) as raw:
            yield Http1Wire(raw, path, headers)
    elif version == "2":
        with H2Client(origin, ca) as client:
            yield Http2Wire(client, path, headers)
    else:
        loop = asyncio.new_event_loop()
        connecting = h3_connection(origin, ca)
        try:
            client = loop.run_until_complete(connecting.__aenter__())
            try:
                yield Http3Wire(client, loop, path, headers)
            finally:
                loop.run_until_complete(connecting.__aexit__(None, None, None))
        finally:
            loop.close()
