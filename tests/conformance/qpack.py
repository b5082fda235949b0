"""RFC 9204: invalid encoder and decoder instructions."""

from __future__ import annotations

from collections.abc import Callable

from harness.clients import quic_frames
from harness.clients.quic_frames import varint
from harness.clients.quic_packets import Close
from harness.clients.raw_h3 import (
    DECODER_STREAM,
    ENCODER_STREAM,
    SECTION_PREFIX,
    H3Error,
    H3Frame,
    StreamType,
    field_section,
    frame,
    indexed,
    prefixed,
)

from .case import Suite, Target, case

E = H3Error
STATIC_TABLE_SIZE = 99
HUGE_CAPACITY = 10_000_000_000


def on_stream(stream: int, instruction: bytes) -> Callable[[Target], Close | None]:
    """A case of bytes on the encoder or decoder stream."""

    def run(target: Target) -> Close | None:
        with target.http() as h3:
            h3.write(stream, instruction)
            return h3.settle()

    return run


def section_case(words: str, section: str, block: bytes, *, suite: Suite = Suite.H3SPEC) -> None:
    """A case of a request's field section."""

    @case(E.QPACK_DECOMPRESSION_FAILED, words=words, section=section, suite=suite)
    def _(target: Target) -> Close | int | None:
        with target.http() as h3:
            return h3.error(h3.raw_request(frame(H3Frame.HEADERS, block)))


@case(
    E.QPACK_DECOMPRESSION_FAILED,
    words="an invalid static table index exits in a field line representation",
    section="QPACK 3.1",
)
def invalid_static_index(target: Target) -> Close | int | None:
    with target.http() as h3:
        block = field_section(h3.get()) + indexed(STATIC_TABLE_SIZE)
        return h3.error(h3.raw_request(frame(H3Frame.HEADERS, block)))


section_case(
    "a field line references a dynamic table entry that is not there",
    "QPACK 2.1.2",
    SECTION_PREFIX + indexed(0, static=False),
    suite=Suite.NEWER,
)
section_case("a field section that ends in its prefix", "QPACK 4.5.1", b"\x00", suite=Suite.OURS)
section_case(
    "a field line that is cut short", "QPACK 4.5", SECTION_PREFIX + b"\x23ab", suite=Suite.OURS
)
section_case(
    "an integer that overflows",
    "QPACK 4.1.1",
    SECTION_PREFIX + b"\xff" + b"\xff" * 12,
    suite=Suite.OURS,
)
section_case(
    "Huffman code with the EOS symbol",
    "QPACK 4.1.2",
    SECTION_PREFIX + b"\x2c\xff\xff\xff\xff\x01a",
    suite=Suite.OURS,
)
case(
    E.QPACK_ENCODER_STREAM_ERROR,
    words="a new dynamic table capacity value exceeds the limit",
    section="QPACK 4.1.3",
)(on_stream(ENCODER_STREAM, prefixed(HUGE_CAPACITY, 5, 0x20)))
case(
    E.QPACK_ENCODER_STREAM_ERROR,
    words="a duplicate of an entry that is not there",
    section="QPACK 4.3.4",
    suite=Suite.OURS,
)(on_stream(ENCODER_STREAM, prefixed(0, 5, 0x00)))
case(
    E.QPACK_ENCODER_STREAM_ERROR,
    words="an insertion that names a static entry beyond the table",
    section="QPACK 3.1",
    suite=Suite.OURS,
)(on_stream(ENCODER_STREAM, prefixed(STATIC_TABLE_SIZE, 6, 0xC0) + b"\x01x"))
case(E.QPACK_DECODER_STREAM_ERROR, words="Insert Count Increment is 0", section="QPACK 4.4.3")(
    on_stream(DECODER_STREAM, prefixed(0, 6, 0x00))
)
case(
    E.QPACK_DECODER_STREAM_ERROR,
    words="Insert Count Increment beyond what was inserted",
    section="QPACK 4.4.3",
    suite=Suite.OURS,
)(on_stream(DECODER_STREAM, prefixed(1_000_000, 6, 0x00)))
case(
    E.QPACK_DECODER_STREAM_ERROR,
    words="Section Acknowledgment of a stream without a section",
    section="QPACK 4.4.1",
    suite=Suite.OURS,
)(on_stream(DECODER_STREAM, prefixed(400, 7, 0x80)))


def second_stream(kind: StreamType, name: str) -> None:
    @case(
        E.H3_STREAM_CREATION_ERROR,
        words=f"a second {name} stream is opened",
        section="QPACK 4.2",
        suite=Suite.NEWER,
    )
    def _(target: Target) -> Close | None:
        with target.http() as h3:
            h3.write(14, varint(kind))
            return h3.settle()


def closed_stream(stream: int, name: str) -> None:
    @case(
        E.H3_CLOSED_CRITICAL_STREAM,
        words=f"the {name} stream is closed",
        section="QPACK 4.2",
        suite=Suite.NEWER,
    )
    def _(target: Target) -> Close | None:
        with target.http() as h3:
            h3.send(quic_frames.stream(stream, b"", offset=h3.sent_on(stream), fin=True))
            return h3.settle()


second_stream(StreamType.QPACK_ENCODER, "encoder")
second_stream(StreamType.QPACK_DECODER, "decoder")
closed_stream(ENCODER_STREAM, "encoder")
closed_stream(DECODER_STREAM, "decoder")


@case(
    E.H3_CLOSED_CRITICAL_STREAM,
    words="an encoder stream ends inside an instruction",
    section="QPACK 4.2",
    suite=Suite.NEWER,
)
def cut_encoder_stream(target: Target) -> Close | None:
    with target.http() as h3:
        # The first byte of a multi-byte Set Dynamic Table Capacity.
        h3.write(ENCODER_STREAM, b"\x3f", fin=True)
        return h3.settle()
