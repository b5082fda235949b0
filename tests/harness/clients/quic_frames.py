"""QUIC frames (RFC 9000 section 19) as bytes: encoded with any value in any field, and parsed.

No function here checks its arguments: a field may contradict another, or the limits of the RFC. For
an invalid length or a truncated frame, a test writes the bytes itself with `varint`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from aioquic.buffer import Buffer

VARINT_MAX = (1 << 62) - 1


class FrameType(IntEnum):
    PADDING = 0x00
    PING = 0x01
    ACK = 0x02
    ACK_ECN = 0x03
    RESET_STREAM = 0x04
    STOP_SENDING = 0x05
    CRYPTO = 0x06
    NEW_TOKEN = 0x07
    STREAM = 0x08
    MAX_DATA = 0x10
    MAX_STREAM_DATA = 0x11
    MAX_STREAMS_BIDI = 0x12
    MAX_STREAMS_UNI = 0x13
    DATA_BLOCKED = 0x14
    STREAM_DATA_BLOCKED = 0x15
    STREAMS_BLOCKED_BIDI = 0x16
    STREAMS_BLOCKED_UNI = 0x17
    NEW_CONNECTION_ID = 0x18
    RETIRE_CONNECTION_ID = 0x19
    PATH_CHALLENGE = 0x1A
    PATH_RESPONSE = 0x1B
    CONNECTION_CLOSE = 0x1C
    APPLICATION_CLOSE = 0x1D
    HANDSHAKE_DONE = 0x1E
    DATAGRAM = 0x30
    DATAGRAM_WITH_LENGTH = 0x31


NOT_ACK_ELICITING = {
    FrameType.PADDING,
    FrameType.ACK,
    FrameType.ACK_ECN,
    FrameType.CONNECTION_CLOSE,
    FrameType.APPLICATION_CLOSE,
}
"""RFC 9000 section 13.2."""


def varint(value: int, *, size: int | None = None) -> bytes:
    """Encodes a variable-length integer (RFC 9000 section 16); `size` (1, 2, 4 or 8) sets a longer
    form than needed.
    """
    if size is None:
        size = 1 if value < 1 << 6 else 2 if value < 1 << 14 else 4 if value < 1 << 30 else 8
    prefix = {1: 0, 2: 1, 4: 2, 8: 3}[size]
    return (value | prefix << (8 * size - 2)).to_bytes(size, "big")


def frame(frame_type: int, *fields: int | bytes) -> bytes:
    """Encodes a type and its fields: integers become variable-length ones, bytes are copied."""
    return b"".join(
        part if isinstance(part, bytes) else varint(part) for part in (frame_type, *fields)
    )


def padding(count: int = 1) -> bytes:
    return bytes(count)


def ping() -> bytes:
    return frame(FrameType.PING)


def ack(
    ranges: Iterable[range], *, delay: int = 0, ecn: tuple[int, int, int] | None = None
) -> bytes:
    """Acknowledges packet numbers, sent or not; `delay` is the encoded field."""
    falling = sorted(ranges, key=lambda each: -each.start)
    first = falling[0]
    parts: list[int] = [first.stop - 1, delay, len(falling) - 1, len(first) - 1]
    smallest = first.start
    for each in falling[1:]:
        parts += [smallest - each.stop - 1, len(each) - 1]
        smallest = each.start
    if ecn is None:
        return frame(FrameType.ACK, *parts)
    return frame(FrameType.ACK_ECN, *parts, *ecn)


def reset_stream(stream: int, code: int = 0, final_size: int = 0) -> bytes:
    return frame(FrameType.RESET_STREAM, stream, code, final_size)


def stop_sending(stream: int, code: int = 0) -> bytes:
    return frame(FrameType.STOP_SENDING, stream, code)


def crypto(offset: int, data: bytes) -> bytes:
    return frame(FrameType.CRYPTO, offset, len(data), data)


def new_token(token: bytes) -> bytes:
    return frame(FrameType.NEW_TOKEN, len(token), token)


def stream(stream_id: int, data: bytes = b"", *, offset: int = 0, fin: bool = False) -> bytes:
    return frame(FrameType.STREAM | 0x04 | 0x02 | fin, stream_id, offset, len(data), data)


def max_data(limit: int) -> bytes:
    return frame(FrameType.MAX_DATA, limit)


def max_stream_data(stream_id: int, limit: int) -> bytes:
    return frame(FrameType.MAX_STREAM_DATA, stream_id, limit)


def max_streams(limit: int, *, bidi: bool) -> bytes:
    return frame(FrameType.MAX_STREAMS_BIDI if bidi else FrameType.MAX_STREAMS_UNI, limit)


def data_blocked(limit: int) -> bytes:
    return frame(FrameType.DATA_BLOCKED, limit)


def stream_data_blocked(stream_id: int, limit: int) -> bytes:
    return frame(FrameType.STREAM_DATA_BLOCKED, stream_id, limit)


def streams_blocked(limit: int, *, bidi: bool) -> bytes:
    return frame(FrameType.STREAMS_BLOCKED_BIDI if bidi else FrameType.STREAMS_BLOCKED_UNI, limit)


def new_connection_id(
    sequence: int, retire_prior_to: int, cid: bytes, reset_token: bytes = bytes(16)
) -> bytes:
    return frame(
        FrameType.NEW_CONNECTION_ID, sequence, retire_prior_to, bytes([len(cid)]), cid, reset_token
    )


def retire_connection_id(sequence: int) -> bytes:
    return frame(FrameType.RETIRE_CONNECTION_ID, sequence)


def path_challenge(data: bytes = bytes(8)) -> bytes:
    return frame(FrameType.PATH_CHALLENGE, data)


def path_response(data: bytes = bytes(8)) -> bytes:
    return frame(FrameType.PATH_RESPONSE, data)


def connection_close(code: int = 0, frame_type: int = 0, reason: bytes = b"") -> bytes:
    return frame(FrameType.CONNECTION_CLOSE, code, frame_type, len(reason), reason)


def application_close(code: int = 0, reason: bytes = b"") -> bytes:
    return frame(FrameType.APPLICATION_CLOSE, code, len(reason), reason)


def handshake_done() -> bytes:
    return frame(FrameType.HANDSHAKE_DONE)


def datagram(data: bytes) -> bytes:
    return frame(FrameType.DATAGRAM_WITH_LENGTH, len(data), data)


@dataclass(frozen=True)
class Frame:
    """A received frame; `fields` are in the RFC's order, without lengths."""

    type: int
    fields: tuple = ()
    fin: bool = False
    """Only for STREAM frames, as is the type without its flags."""
    acknowledged: list[range] = field(default_factory=list)
    """Only for ACK frames."""

    @property
    def ack_eliciting(self) -> bool:
        return self.type not in NOT_ACK_ELICITING


PLAIN_FIELDS = {
    FrameType.PING: 0,
    FrameType.RESET_STREAM: 3,
    FrameType.STOP_SENDING: 2,
    FrameType.MAX_DATA: 1,
    FrameType.MAX_STREAM_DATA: 2,
    FrameType.MAX_STREAMS_BIDI: 1,
    FrameType.MAX_STREAMS_UNI: 1,
    FrameType.DATA_BLOCKED: 1,
    FrameType.STREAM_DATA_BLOCKED: 2,
    FrameType.STREAMS_BLOCKED_BIDI: 1,
    FrameType.STREAMS_BLOCKED_UNI: 1,
    FrameType.RETIRE_CONNECTION_ID: 1,
    FrameType.HANDSHAKE_DONE: 0,
}
"""Number of variable-length integers in frames that consist only of them."""


def parse(payload: bytes) -> list[Frame]:
    """Parses the frames of a packet, without padding. The server under test sends valid ones."""
    buffer = Buffer(data=payload)
    frames = []
    while not buffer.eof():
        frame_type = buffer.pull_uint_var()
        if frame_type != FrameType.PADDING:
            frames.append(parse_one(frame_type, buffer))
    return frames


def parse_one(frame_type: int, buffer: Buffer) -> Frame:
    pull = buffer.pull_uint_var
    if frame_type in PLAIN_FIELDS:
        return Frame(frame_type, tuple(pull() for _ in range(PLAIN_FIELDS[frame_type])))
    if 0x08 <= frame_type <= 0x0F:
        stream_id = pull()
        offset = pull() if frame_type & 0x04 else 0
        size = pull() if frame_type & 0x02 else buffer.capacity - buffer.tell()
        return Frame(
            FrameType.STREAM,
            (stream_id, offset, buffer.pull_bytes(size)),
            fin=bool(frame_type & 0x01),
        )
    match frame_type:
        case FrameType.ACK | FrameType.ACK_ECN:
            largest, delay, count = pull(), pull(), pull()
            first = pull()
            ranges = [range(largest - first, largest + 1)]
            for _ in range(count):
                gap, size = pull(), pull()
                end = ranges[-1].start - gap - 1
                ranges.append(range(end - size - 1, end))
            ecn = tuple(pull() for _ in range(3)) if frame_type == FrameType.ACK_ECN else ()
            return Frame(frame_type, (largest, delay, *ecn), acknowledged=ranges)
        case FrameType.CRYPTO:
            return Frame(frame_type, (pull(), buffer.pull_bytes(pull())))
        case FrameType.NEW_TOKEN | FrameType.DATAGRAM_WITH_LENGTH:
            return Frame(frame_type, (buffer.pull_bytes(pull()),))
        case FrameType.DATAGRAM:
            return Frame(frame_type, (buffer.pull_bytes(buffer.capacity - buffer.tell()),))
        case FrameType.NEW_CONNECTION_ID:
            sequence, retire_prior_to = pull(), pull()
            cid = buffer.pull_bytes(buffer.pull_uint8())
            return Frame(frame_type, (sequence, retire_prior_to, cid, buffer.pull_bytes(16)))
        case FrameType.PATH_CHALLENGE | FrameType.PATH_RESPONSE:
            return Frame(frame_type, (buffer.pull_bytes(8),))
        case FrameType.CONNECTION_CLOSE:
            return Frame(frame_type, (pull(), pull(), buffer.pull_bytes(pull())))
        case FrameType.APPLICATION_CLOSE:
            return Frame(frame_type, (pull(), buffer.pull_bytes(pull())))
    raise ValueError(f"the server sent a frame of type {frame_type:#x}")
