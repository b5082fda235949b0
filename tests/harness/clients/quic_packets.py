"""Parts of QUIC packets (RFC 9000): levels, headers, transport parameters, error codes; and
received data.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import IntEnum

from aioquic import tls
from aioquic.buffer import Buffer
from aioquic.quic.packet import QuicPacketType, encode_long_header_first_byte

from .quic_frames import Frame, varint

Level = tls.Epoch
"""Encryption levels: INITIAL, ZERO_RTT, HANDSHAKE, ONE_RTT. The second and the last share packet
numbers.
"""

SMALLEST_INITIAL = 1200
"""RFC 9000 section 14.1: the smallest datagram for an Initial packet."""
TAG_SIZE = 16
PACKET_TYPES = {
    Level.INITIAL: QuicPacketType.INITIAL,
    Level.ZERO_RTT: QuicPacketType.ZERO_RTT,
    Level.HANDSHAKE: QuicPacketType.HANDSHAKE,
}
LEVELS = {packet_type: level for level, packet_type in PACKET_TYPES.items()} | {
    QuicPacketType.ONE_RTT: Level.ONE_RTT
}


class TransportError(IntEnum):
    """Error codes (RFC 9000 section 20.1)."""

    NO_ERROR = 0x00
    INTERNAL_ERROR = 0x01
    CONNECTION_REFUSED = 0x02
    FLOW_CONTROL_ERROR = 0x03
    STREAM_LIMIT_ERROR = 0x04
    STREAM_STATE_ERROR = 0x05
    FINAL_SIZE_ERROR = 0x06
    FRAME_ENCODING_ERROR = 0x07
    TRANSPORT_PARAMETER_ERROR = 0x08
    CONNECTION_ID_LIMIT_ERROR = 0x09
    PROTOCOL_VIOLATION = 0x0A
    INVALID_TOKEN = 0x0B
    APPLICATION_ERROR = 0x0C
    CRYPTO_BUFFER_EXCEEDED = 0x0D
    KEY_UPDATE_ERROR = 0x0E
    AEAD_LIMIT_REACHED = 0x0F
    NO_VIABLE_PATH = 0x10


class Parameter(IntEnum):
    """Transport parameters (RFC 9000 section 18.2 and RFC 9221)."""

    ORIGINAL_DESTINATION_CONNECTION_ID = 0x00
    MAX_IDLE_TIMEOUT = 0x01
    STATELESS_RESET_TOKEN = 0x02
    MAX_UDP_PAYLOAD_SIZE = 0x03
    INITIAL_MAX_DATA = 0x04
    INITIAL_MAX_STREAM_DATA_BIDI_LOCAL = 0x05
    INITIAL_MAX_STREAM_DATA_BIDI_REMOTE = 0x06
    INITIAL_MAX_STREAM_DATA_UNI = 0x07
    INITIAL_MAX_STREAMS_BIDI = 0x08
    INITIAL_MAX_STREAMS_UNI = 0x09
    ACK_DELAY_EXPONENT = 0x0A
    MAX_ACK_DELAY = 0x0B
    DISABLE_ACTIVE_MIGRATION = 0x0C
    PREFERRED_ADDRESS = 0x0D
    ACTIVE_CONNECTION_ID_LIMIT = 0x0E
    INITIAL_SOURCE_CONNECTION_ID = 0x0F
    RETRY_SOURCE_CONNECTION_ID = 0x10
    MAX_DATAGRAM_FRAME_SIZE = 0x20


Parameters = dict[int, bytes]


def default_parameters(scid: bytes) -> Parameters:
    """Windows that no test fills by accident; they are never raised."""
    return {
        Parameter.MAX_IDLE_TIMEOUT: varint(60_000),
        Parameter.INITIAL_MAX_DATA: varint(1 << 30),
        Parameter.INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: varint(1 << 28),
        Parameter.INITIAL_MAX_STREAM_DATA_BIDI_REMOTE: varint(1 << 28),
        Parameter.INITIAL_MAX_STREAM_DATA_UNI: varint(1 << 24),
        Parameter.INITIAL_MAX_STREAMS_BIDI: varint(100),
        Parameter.INITIAL_MAX_STREAMS_UNI: varint(100),
        Parameter.ACTIVE_CONNECTION_ID_LIMIT: varint(8),
        Parameter.INITIAL_SOURCE_CONNECTION_ID: scid,
    }


def encode_parameters(parameters: Parameters) -> bytes:
    return b"".join(varint(key) + varint(len(value)) + value for key, value in parameters.items())


def decode_parameters(data: bytes) -> Parameters:
    buffer = Buffer(data=data)
    parameters: Parameters = {}
    while not buffer.eof():
        key = buffer.pull_uint_var()
        parameters[key] = buffer.pull_bytes(buffer.pull_uint_var())
    return parameters


@dataclass(frozen=True)
class Close:
    """A received CONNECTION_CLOSE frame."""

    layer: str
    """`transport` (type 0x1c) or `application` (type 0x1d)."""
    code: int
    frame_type: int | None
    """Frame type that the server reports as the cause; only in the transport layer, 0 if unknown.
    """
    reason: str
    level: Level

    @property
    def alert(self) -> int | None:
        """Returns the TLS alert in a CRYPTO_ERROR (RFC 9001 section 4.8)."""
        return (
            self.code - 0x100 if self.layer == "transport" and 0x100 <= self.code <= 0x1FF else None
        )

    def __str__(self) -> str:
        blamed = "" if self.frame_type is None else f", frame {self.frame_type:#x}"
        return f"{self.layer} error {self.code:#x}{blamed}: {self.reason or 'no reason'}"


@dataclass
class Packet:
    """A packet before protection. `edit_packet` may change any part of it."""

    level: Level
    payload: bytes
    number: int
    dcid: bytes
    scid: bytes
    version: int
    token: bytes = b""
    number_size: int = 4
    """With four bytes, a packet without any frame can be protected; with fewer, it needs `4 -
    number_size` bytes.
    """
    reserved_bits: int = 0
    """0 to 3; RFC 9000 section 17 requires 0."""
    fixed_bit: bool = True
    key_phase: int | None = None
    """None for the current key phase."""

    def header(self, key_phase: int) -> bytes:
        number = (self.number & ((1 << 8 * self.number_size) - 1)).to_bytes(self.number_size, "big")
        if self.level == Level.ONE_RTT:
            phase = key_phase if self.key_phase is None else self.key_phase
            first = 0x40 | self.reserved_bits << 3 | phase << 2 | (self.number_size - 1)
            return bytes([first if self.fixed_bit else first & ~0x40]) + self.dcid + number
        bits = self.reserved_bits << 2 | (self.number_size - 1)
        first = encode_long_header_first_byte(self.version, PACKET_TYPES[self.level], bits)
        token = varint(len(self.token)) + self.token if self.level == Level.INITIAL else b""
        length = varint(self.number_size + len(self.payload) + TAG_SIZE, size=2)
        return (
            bytes([first if self.fixed_bit else first & ~0x40])
            + self.version.to_bytes(4, "big")
            + bytes([len(self.dcid)])
            + self.dcid
            + bytes([len(self.scid)])
            + self.scid
            + token
            + length
            + number
        )


@dataclass(frozen=True)
class Received:
    """A received packet that could be decrypted."""

    level: Level
    number: int
    frames: list[Frame]


@dataclass
class Incoming:
    """A stream's receiving side: the data in order, and how the stream ended."""

    data: bytearray = field(default_factory=bytearray)
    final_size: int | None = None
    reset: int | None = None
    stopped: int | None = None
    """Code of a STOP_SENDING for our side of it."""
    _pieces: dict[int, bytes] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return self.final_size == len(self.data)

    @property
    def ended(self) -> bool:
        return self.finished or self.reset is not None

    def insert(self, offset: int, data: bytes, fin: bool = False) -> None:
        if fin:
            self.final_size = offset + len(data)
        if len(data) > len(self._pieces.get(offset, b"")):
            self._pieces[offset] = data
        for start in sorted(self._pieces):
            if start > len(self.data):
                break
            self.data += self._pieces.pop(start)[len(self.data) - start :]


class Numbers:
    """A set of packet numbers, stored as ascending ranges."""

    def __init__(self) -> None:
        self.ranges: list[range] = []

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.ranges, number, key=lambda each: each.start)
        return at > 0 and number in self.ranges[at - 1]

    def __len__(self) -> int:
        return sum(len(each) for each in self.ranges)

    def add(self, new: range) -> None:
        if self.ranges and self.ranges[-1].start <= new.start <= self.ranges[-1].stop:
            self.ranges[-1] = range(self.ranges[-1].start, max(new.stop, self.ranges[-1].stop))
            return
        merged: list[range] = []
        for each in sorted([*self.ranges, new], key=lambda each: each.start):
            if merged and merged[-1].stop >= each.start:
                merged[-1] = range(merged[-1].start, max(merged[-1].stop, each.stop))
            else:
                merged.append(each)
        self.ranges = merged


def number_space(level: Level) -> Level:
    return Level.ONE_RTT if level == Level.ZERO_RTT else level
