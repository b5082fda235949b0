"""HTTP/3 (RFC 9114) and QPACK (RFC 9204) bytes on a `RawQuic`: frames and field lines that no library would send.

with RawH3(server.origin, ca) as h3:
    h3.open()                                            # handshake, control and QPACK streams
    stream = h3.request([(":method", "GET"), (":path", "/")])
    assert h3.error(stream) == H3Error.H3_MESSAGE_ERROR
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from urllib.parse import urlsplit

import pylsqpack
from aioquic.buffer import Buffer, BufferReadError

from .quic_frames import varint
from .quic_packets import Close, Incoming
from .raw_quic import ClosedError, RawQuic

Field = tuple[str | bytes, str | bytes]


class H3Frame(IntEnum):
    DATA = 0x00
    HEADERS = 0x01
    CANCEL_PUSH = 0x03
    SETTINGS = 0x04
    PUSH_PROMISE = 0x05
    GOAWAY = 0x07
    MAX_PUSH_ID = 0x0D
    PRIORITY_UPDATE_REQUEST = 0xF0700
    PRIORITY_UPDATE_PUSH = 0xF0701


class StreamType(IntEnum):
    CONTROL = 0x00
    PUSH = 0x01
    QPACK_ENCODER = 0x02
    QPACK_DECODER = 0x03


class Setting(IntEnum):
    QPACK_MAX_TABLE_CAPACITY = 0x01
    MAX_FIELD_SECTION_SIZE = 0x06
    QPACK_BLOCKED_STREAMS = 0x07
    ENABLE_CONNECT_PROTOCOL = 0x08
    H3_DATAGRAM = 0x33


class H3Error(IntEnum):
    """Error codes (RFC 9114 section 8.1 and RFC 9204 section 6)."""

    H3_NO_ERROR = 0x0100
    H3_GENERAL_PROTOCOL_ERROR = 0x0101
    H3_INTERNAL_ERROR = 0x0102
    H3_STREAM_CREATION_ERROR = 0x0103
    H3_CLOSED_CRITICAL_STREAM = 0x0104
    H3_FRAME_UNEXPECTED = 0x0105
    H3_FRAME_ERROR = 0x0106
    H3_EXCESSIVE_LOAD = 0x0107
    H3_ID_ERROR = 0x0108
    H3_SETTINGS_ERROR = 0x0109
    H3_MISSING_SETTINGS = 0x010A
    H3_REQUEST_REJECTED = 0x010B
    H3_REQUEST_CANCELLED = 0x010C
    H3_REQUEST_INCOMPLETE = 0x010D
    H3_MESSAGE_ERROR = 0x010E
    H3_CONNECT_ERROR = 0x010F
    H3_VERSION_FALLBACK = 0x0110
    QPACK_DECOMPRESSION_FAILED = 0x0200
    QPACK_ENCODER_STREAM_ERROR = 0x0201
    QPACK_DECODER_STREAM_ERROR = 0x0202


CONTROL_STREAM = 2
ENCODER_STREAM = 6
DECODER_STREAM = 10
"""Stream numbers that `open` uses for the client's unidirectional streams."""


def frame(frame_type: int, payload: bytes = b"") -> bytes:
    return varint(frame_type) + varint(len(payload)) + payload


def settings(pairs: Iterable[tuple[int, int]] = ()) -> bytes:
    return frame(H3Frame.SETTINGS, b"".join(varint(key) + varint(value) for key, value in pairs))


def prefixed(value: int, bits: int, first: int = 0) -> bytes:
    """Encodes an integer with a prefix of this many bits (RFC 7541 section 5.1), in a byte whose
    other bits are `first`.
    """
    full = (1 << bits) - 1
    if value < full:
        return bytes([first | value])
    out = bytearray([first | full])
    value -= full
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SECTION_PREFIX = b"\x00\x00"
"""Required insert count and base of a field section without dynamic references (RFC 9204 section
4.5.1).
"""


def literal(name: str | bytes, value: str | bytes) -> bytes:
    """Encodes a literal field line with a literal name (RFC 9204 section 4.5.6), without Huffman
    coding and with any octets.
    """
    name = name.encode() if isinstance(name, str) else name
    value = value.encode() if isinstance(value, str) else value
    return prefixed(len(name), 3, 0x20) + name + prefixed(len(value), 7) + value


def indexed(index: int, *, static: bool = True) -> bytes:
    """Encodes an indexed field line (RFC 9204 section 4.5.2)."""
    return prefixed(index, 6, 0xC0 if static else 0x80)


def field_section(fields: Iterable[Field]) -> bytes:
    return SECTION_PREFIX + b"".join(literal(name, value) for name, value in fields)


def headers(fields: Iterable[Field]) -> bytes:
    return frame(H3Frame.HEADERS, field_section(fields))


def data(payload: bytes) -> bytes:
    return frame(H3Frame.DATA, payload)


@dataclass
class Answer:
    """Responses on a request stream. Interim responses precede the last one."""

    heads: list[list[tuple[str, str]]] = field(default_factory=list)
    body: bytes = b""
    trailers: list[tuple[str, str]] | None = None
    reset: int | None = None

    @property
    def status(self) -> int | None:
        return int(dict(self.heads[-1])[":status"]) if self.heads else None

    @property
    def interim(self) -> list[int]:
        return [int(dict(head)[":status"]) for head in self.heads[:-1]]

    def field(self, name: str) -> str | None:
        return dict(self.heads[-1]).get(name)


class RawH3(RawQuic):
    """One connection.

    It announces no dynamic table, so the server's field sections are self-contained.
    """

    def __init__(self, origin: str, *arguments, **options):
        super().__init__(origin, *arguments, **options)
        self.authority = urlsplit(origin).netloc
        self._next_request = 0

    def open(self, pairs: Iterable[tuple[int, int]] = ()) -> RawH3:
        """Runs the handshake, then opens the three streams that each client has."""
        self.handshake()
        self.write(CONTROL_STREAM, varint(StreamType.CONTROL) + settings(pairs))
        self.write(ENCODER_STREAM, varint(StreamType.QPACK_ENCODER))
        self.write(DECODER_STREAM, varint(StreamType.QPACK_DECODER))
        return self

    def control(self, *frames: bytes) -> None:
        """Sends frames on the control stream."""
        self.write(CONTROL_STREAM, b"".join(frames))

    def next_request(self) -> int:
        stream = self._next_request
        self._next_request += 4
        return stream

    def get(self, path: str = "/", *more: Field, method: str = "GET") -> list[Field]:
        """Returns the fields of a valid request."""
        start = [
            (":method", method),
            (":scheme", "https"),
            (":authority", self.authority),
            (":path", path),
        ]
        return [*start, *more]

    def request(self, fields: Iterable[Field], *frames: bytes, fin: bool = True) -> int:
        """Sends a HEADERS frame and the given frames on the next request stream."""
        return self.raw_request(headers(fields), *frames, fin=fin)

    def raw_request(self, *parts: bytes, fin: bool = True) -> int:
        """Sends bytes on the next request stream."""
        stream = self.next_request()
        self.write(stream, b"".join(parts), fin=fin)
        return stream

    def answer(self, stream: int) -> Answer:
        """Waits for the end of a request stream."""
        return parse_answer(self.wait_stream(stream))

    def fetch(self, path: str = "/", *more: Field) -> Answer:
        return self.answer(self.request(self.get(path, *more)))

    def is_served(self, path: str = "/") -> bool:
        """Returns whether an honest request on this connection still gets its response."""
        return self.fetch(path).status == 200

    def error(self, stream: int) -> Close | int | None:
        """Returns the server's reaction to an invalid request: the close of the connection, the
        code of a reset, or None for a response.

        A stream error may arrive as RESET_STREAM, STOP_SENDING or both (RFC 9114 section 8).
        """
        incoming = self.streams.setdefault(stream, Incoming())
        try:
            self.wait(
                f"an end of stream {stream}", lambda: incoming.ended or incoming.stopped is not None
            )
        except ClosedError:
            return self.closed
        return incoming.stopped if incoming.reset is None else incoming.reset


def parse_answer(incoming: Incoming) -> Answer:
    answer = Answer(reset=incoming.reset)
    decoder = pylsqpack.Decoder(0, 0)
    buffer = Buffer(data=bytes(incoming.data))
    body = bytearray()
    while not buffer.eof():
        try:
            frame_type = buffer.pull_uint_var()
            payload = buffer.pull_bytes(buffer.pull_uint_var())
        except BufferReadError:
            break  # A reset truncated the last frame.
        if frame_type == H3Frame.HEADERS:
            _, fields = decoder.feed_header(0, payload)
            text = [(name.decode(), value.decode("latin-1")) for name, value in fields]
            if answer.heads and not 100 <= answer.status < 200:
                answer.trailers = text
            else:
                answer.heads.append(text)
        elif frame_type == H3Frame.DATA:
            body += payload
    answer.body = bytes(body)
    return answer
