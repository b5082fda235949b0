"""HTTP/2 with the sans-IO library h2, over TLS or in clear text: the test decides when windows open
and data is read.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.events

from ..response import Response
from ..waiting import DEADLINE_SECONDS
from .tls import tls_connection


class StreamResetError(Exception):
    """The server reset the stream of a request."""

    def __init__(self, code: int):
        super().__init__(f"stream reset with code {code:#x}")
        self.code = code


class ConnectionEndedError(ConnectionError):
    """The server closed the connection before the response ended."""


GOAWAY = 0x07
"""Frame type (RFC 9113 section 6.8)."""


@dataclass(frozen=True)
class GoAway:
    last_stream: int
    code: int
    debug_data: bytes


@dataclass
class Exchange:
    """Data received on a stream so far."""

    headers: list[tuple[str, str]] | None = None
    interim: list[list[tuple[str, str]]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None

    def response(self) -> Response:
        fields = [(name, value) for name, value in self.headers if not name.startswith(":")]
        return Response.with_body(
            int(dict(self.headers)[":status"]), "HTTP/2", fields, bytes(self.body)
        )


class H2Client:
    """One connection. It only reads when told to, so a test can keep the server waiting."""

    def __init__(self, origin: str, ca: Path | None):
        """Connects over TLS, or without a certificate in clear text, where the server must
        recognize HTTP/2 by the preface.
        """
        url = urlsplit(origin)
        self.authority = url.netloc
        self.scheme = url.scheme
        if ca is None:
            self.socket = socket.create_connection((url.hostname, url.port), DEADLINE_SECONDS)
        else:
            self.socket = tls_connection(origin, ca, "h2")
        config = h2.config.H2Configuration(
            header_encoding="utf-8",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.http = h2.connection.H2Connection(config)
        self.http.initiate_connection()
        self.flush()
        self.exchanges: dict[int, Exchange] = {}
        self.go_away: list[GoAway] = []
        self._unread = bytearray()
        self.end_of_stream = False
        self.opens_windows = True

    def __enter__(self) -> H2Client:
        return self

    def __exit__(self, *_exception) -> None:
        self.socket.close()

    def flush(self) -> None:
        self.socket.sendall(self.http.data_to_send())

    def start(self, path: str, *, method: str = "GET", headers=(), end: bool = True) -> int:
        """Sends the head of a request, by default a complete request, and returns its stream."""
        stream = self.http.get_next_available_stream_id()
        self.exchanges[stream] = Exchange()
        head = [
            (":method", method),
            (":scheme", self.scheme),
            (":authority", self.authority),
            (":path", path),
            *headers,
        ]
        self.http.send_headers(stream, head, end_stream=end)
        self.flush()
        return stream

    def send_fields(self, fields: list[tuple[str, str]], content: bytes = b"") -> int:
        """Sends a request with exactly these fields, valid or not, and its content; returns its
        stream.
        """
        stream = self.http.get_next_available_stream_id()
        self.exchanges[stream] = Exchange()
        self.http.send_headers(stream, fields, end_stream=not content)
        if content:
            self.http.send_data(stream, content, end_stream=True)
        self.flush()
        return stream

    def fetch(self, path: str, **asked) -> Response:
        return self.finish(self.start(path, **asked))

    def finish(self, stream: int) -> Response:
        exchange = self.exchanges[stream]
        while not exchange.ended and exchange.reset is None:
            if not self.read():
                raise ConnectionEndedError(
                    f"the server closed the connection in mid-answer: {self.go_away}"
                )
        if exchange.reset is not None:
            raise StreamResetError(exchange.reset)
        return exchange.response()

    def read(self) -> bool:
        """Reads and processes the next data; returns false at the end of the connection."""
        try:
            data = self.socket.recv(65536)
        except (TimeoutError, ConnectionResetError):
            data = b""
        if not data:
            self.end_of_stream = True
            return False
        self._unread += data
        while frame := self._next_frame():
            if frame[3] == GOAWAY:
                self.go_away.append(
                    GoAway(*struct.unpack(">II", frame[9:17]), debug_data=frame[17:])
                )
                continue
            for event in self.http.receive_data(frame):
                self._take(event)
        self.flush()
        return True

    def _next_frame(self) -> bytes | None:
        """Returns the next whole frame, including its nine-byte head.

        The library treats a GOAWAY as the end of the connection and rejects later frames of the
        server (RFC 9113 section 6.8), so GOAWAY frames are parsed here.
        """
        if len(self._unread) < 9:
            return None
        size = 9 + int.from_bytes(self._unread[:3], "big")
        if len(self._unread) < size:
            return None
        frame = bytes(self._unread[:size])
        del self._unread[:size]
        return frame

    def open_windows(self) -> None:
        """Returns the credit of all bytes received while `opens_windows` was off."""
        self.opens_windows = True
        for stream, exchange in self.exchanges.items():
            if exchange.body and not exchange.ended:
                self.http.acknowledge_received_data(len(exchange.body), stream)
        self.flush()

    def _take(self, event: h2.events.Event) -> None:
        exchange = self.exchanges.get(getattr(event, "stream_id", None))
        if exchange is None:
            return
        if isinstance(event, h2.events.ResponseReceived):
            exchange.headers = event.headers
        elif isinstance(event, h2.events.InformationalResponseReceived):
            exchange.interim.append(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            exchange.body += event.data
            if self.opens_windows:
                self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            exchange.ended = True
        elif isinstance(event, h2.events.StreamReset):
            exchange.reset = event.error_code
