"""Attacks on HTTP/3 and QPACK. Floods of frames and resets are in `e2e/test_http3_floods.py`."""

from __future__ import annotations

from harness.clients.quic_frames import varint
from harness.clients.quic_packets import Parameter
from harness.clients.raw_h3 import (
    CONTROL_STREAM,
    ENCODER_STREAM,
    H3Error,
    H3Frame,
    RawH3,
    data,
    field_section,
    frame,
    headers,
    literal,
    prefixed,
)
from harness.clients.raw_quic import ClosedError

from .attack import Ground, attack

FAMILY = "HTTP/3"

BIG_VALUE = bytes(b"v" * 3000)


def insert_big_field(h3: RawH3) -> None:
    """Inserts one entry of 3000 bytes into the server's dynamic table (RFC 9204 section 4.3)."""
    capacity = prefixed(4096, 5, 0x20)
    insertion = prefixed(1, 5, 0x40) + b"x" + prefixed(len(BIG_VALUE), 7) + BIG_VALUE
    h3.write(ENCODER_STREAM, capacity + insertion)


def section_with_references(h3: RawH3, path: str, count: int, method: str = "GET") -> bytes:
    """Encodes a head with this many references to the big entry, of one byte each."""
    # RFC 9204 section 4.5.1: one insertion is required, encoded as 2; the base is the same.
    fields = b"".join(literal(name, value) for name, value in h3.get(path, method=method))
    return b"\x02\x00" + fields + b"\x80" * count


def refused(h3: RawH3, stream: int) -> bool:
    """Returns whether a request got a 4xx response or a reset; the connection stays usable."""
    if h3.error(stream) is None:
        return h3.answer(stream).status in (413, 431)
    return h3.closed is None


@attack(
    family=FAMILY,
    source="CVE-2025-64702 (quic-go)",
    what="200 heads that refer to a field of 3000 bytes 10,000 times, with a byte each: 30 MB from 10 KB",
    limit="`field_section_bytes`, `field_lines`: counted while decoding, by the size that RFC 9114 defines",
    counters=("heads_too_large", "heads_too_many_lines"),
    memory_mib=16,
    cpu_seconds=5,
)
def qpack_bomb(ground: Ground) -> None:
    h3 = ground.h3()
    insert_big_field(h3)
    for _ in range(200):
        stream = h3.raw_request(
            frame(H3Frame.HEADERS, section_with_references(h3, "/small.txt", 10_000)), fin=True
        )
        assert refused(h3, stream)
        # An honest request makes up for it.
        assert h3.is_served("/small.txt")


@attack(
    family=FAMILY,
    source="calif.io, HTTP/2 Bomb, June 2026, adapted to HTTP/3",
    what="1000 requests on 4 connections, each with 20 references to a field of 3000 bytes, with response windows "
    "of 0",
    limit="`field_section_bytes` for each, `concurrent_streams`, `open_requests`; each buffers the next 64 KiB of "
    "its file, which is most of the memory",
    flags=("--limit", "response_timeout=3s"),
    memory_mib=112,
    cpu_seconds=8,
)
def indexed_references_held_by_a_zero_window(ground: Ground) -> None:
    def closed_window(parameters):
        return {**parameters, Parameter.INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: varint(0)}

    for _ in range(4):
        h3 = ground.h3(edit_parameters=closed_window)
        insert_big_field(h3)
        for number in range(250):
            h3.raw_request(
                frame(H3Frame.HEADERS, section_with_references(h3, "/big.bin", 20)), fin=True
            )
            if number % 50 == 49:
                assert h3.settle(1) is None


@attack(
    family=FAMILY,
    source="CVE-2025-64702, CVE-2026-40898 (quic-go: trailers)",
    what="60 requests with trailers of 1 MiB or of 5000 lines, after content that the handler reads",
    limit="`field_section_bytes`, `field_lines`, for trailers as for heads",
    handler=True,
    memory_mib=16,
    cpu_seconds=4,
)
def header_bomb_in_trailers(ground: Ground) -> None:
    h3 = ground.h3()
    head = headers(h3.get("/upload", method="POST"))
    bombs = [
        headers([("x-bomb", "x" * (1 << 20))]),
        headers([(f"x-{number}", "1") for number in range(5000)]),
    ]
    for number in range(60):
        bomb = bombs[number % 2]
        stream = h3.next_request()
        h3.write(stream, head + data(b"pay"))
        # Only as much of it as shows the server its size: it stops reading there.
        h3.write(stream, bomb[:20_000], fin=False)
        if number % 2 == 0:
            assert refused(h3, stream), h3.closed
        else:
            h3.write(stream, bomb[20_000:], fin=True)
            assert refused(h3, stream), h3.closed
        assert h3.is_served("/bytes/10")


@attack(
    family=FAMILY,
    source="header bombs in general",
    what="heads with an announced size of 4 GiB, with 1 MiB, and with 5000 lines",
    limit="`field_section_bytes`, `field_lines`",
    counters=("heads_too_large", "heads_too_many_lines"),
    memory_mib=16,
    cpu_seconds=3,
)
def header_bomb(ground: Ground) -> None:
    h3 = ground.h3()
    assert refused(
        h3, h3.raw_request(varint(H3Frame.HEADERS) + varint(1 << 32) + bytes(100), fin=False)
    )
    for _ in range(20):
        many = h3.raw_request(
            headers(h3.get("/", *((f"x-{number}", "1") for number in range(5000))))
        )
        assert refused(h3, many)
        assert h3.is_served("/small.txt")


@attack(
    family=FAMILY,
    source="Slowloris (2009), over HTTP/3",
    what="2000 heads on 10 connections, sent a byte at a time and never completed",
    limit="`head_timeout`, `partial_heads`",
    flags=("--limit", "head_timeout=1s"),
    counters=("head_timeouts", "partial_heads_refused"),
    memory_mib=16,
    cpu_seconds=5,
)
def slow_header_over_http3(ground: Ground) -> None:
    connections = [ground.h3() for _ in range(10)]
    for h3 in connections:
        for _ in range(200):
            h3.raw_request(b"\x01\x44\x00\x00\x00", fin=False)
        h3.settle(1)
    for h3 in connections:
        ground.eventually(
            "the reset of all of them, or the close",
            lambda h3=h3: h3.closed or (h3.port.receive(0.05), resets(h3))[1] >= 200,
        )
        assert h3.closed is None or h3.closed.code == H3Error.H3_EXCESSIVE_LOAD, h3.closed


def resets(h3: RawH3) -> int:
    return sum(each.reset is not None for each in h3.streams.values())


@attack(
    family=FAMILY,
    source="Slow POST (R.U.D.Y.), over HTTP/3",
    what="200 uploads on 2 connections that stop after a byte",
    limit="`body_timeout`: 408",
    flags=("--limit", "body_timeout=1s"),
    handler=True,
    memory_mib=16,
    cpu_seconds=5,
)
def slow_body_over_http3(ground: Ground) -> None:
    for _ in range(2):
        h3 = ground.h3()
        streams = [
            h3.request(
                h3.get("/upload", ("content-length", "1000000"), method="POST"),
                data(b"x"),
                fin=False,
            )
            for _ in range(100)
        ]
        assert {h3.answer(stream).status for stream in streams} == {408}
        assert h3.is_served("/bytes/10")


@attack(
    family=FAMILY,
    source="Slow read (2012), over HTTP/3",
    what="200 downloads of 10 MiB on 4 connections with open windows and without acknowledgements",
    limit="`send_window_bytes`, `response_timeout`",
    flags=("--limit", "response_timeout=2s"),
    memory_mib=32,
    cpu_seconds=8,
)
def slow_reader_over_http3(ground: Ground) -> None:
    for _ in range(4):
        h3 = ground.h3()
        h3.make_ack = lambda _level, _ranges: None
        for _ in range(50):
            h3.request(h3.get("/big.bin"))
        for _ in range(20):
            h3.port.receive(0.05)


@attack(
    family=FAMILY,
    source="Slow read (2012), over HTTP/3",
    what="200 downloads of 10 MiB on 2 connections with windows of 1000 bytes that never open, until the server "
    "times out",
    limit="`response_timeout`",
    flags=("--limit", "response_timeout=1s"),
    counters=("response_timeouts", "responses_too_slow"),
    memory_mib=32,
    cpu_seconds=5,
)
def shut_window_over_http3(ground: Ground) -> None:
    def small(parameters):
        return {**parameters, Parameter.INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: varint(1000)}

    for _ in range(2):
        h3 = ground.h3(edit_parameters=small)
        streams = [h3.request(h3.get("/big.bin")) for _ in range(100)]
        ended = {h3.wait_stream(stream).reset for stream in streams}
        assert None not in ended
        assert h3.is_served("/small.txt")


@attack(
    family=FAMILY,
    source="CVE-2026-33555 (HAProxy)",
    what="200 requests whose content is shorter or longer than announced, ended by a separate FIN",
    limit="H3_MESSAGE_ERROR: a message with a wrong length is malformed",
    handler=True,
    memory_mib=16,
    cpu_seconds=5,
)
def standalone_fin_and_content_length(ground: Ground) -> None:
    h3 = ground.h3()
    for number in range(200):
        length, content = [(10, b"GET"), (10, b""), (2, b"GET")][number % 3]
        body = data(content) if content else b""
        stream = h3.request(
            h3.get("/echo", ("content-length", str(length)), method="POST"), body, fin=False
        )
        h3.settle(1)
        h3.write(stream, b"", fin=True)
        assert h3.error(stream) == H3Error.H3_MESSAGE_ERROR
        assert h3.is_served("/bytes/10")


@attack(
    family=FAMILY,
    source="draft-chen-quic-logical-vuln-mitigations",
    what="100 connections that open all allowed streams, each with one useless byte",
    limit="`concurrent_streams`, `uni_streams`, `partial_heads`",
    memory_mib=32,
    cpu_seconds=6,
)
def stream_flood(ground: Ground) -> None:
    for _ in range(100):
        h3 = ground.h3()
        for stream in range(0, 4 * 100, 4):
            h3.write(stream, b"\x01")
        for stream in range(CONTROL_STREAM + 12, CONTROL_STREAM + 12 + 4 * 5, 4):
            h3.write(stream, b"\x21")
        assert h3.settle(1) is None


@attack(
    family=FAMILY,
    source="RFC 9204 section 7.1",
    what="50,000 insertions into the dynamic table, each evicting the one before, and as many duplicates",
    limit="the table's capacity of 4 KiB, and a credit for the cost of insertions",
    memory_mib=16,
    cpu_seconds=3,
)
def qpack_insertion_flood(ground: Ground) -> None:
    h3 = ground.h3()
    h3.write(ENCODER_STREAM, prefixed(4096, 5, 0x20))
    insertion = prefixed(1, 5, 0x40) + b"x" + prefixed(1, 7) + b"y"
    try:
        for number in range(500):
            h3.write(ENCODER_STREAM, insertion * 50 + b"\x00" * 50)
            if number % 50 == 49:
                h3.settle(1)
        assert h3.is_served("/small.txt")
    except ClosedError as error:
        assert error.close.code in (
            H3Error.H3_EXCESSIVE_LOAD,
            H3Error.QPACK_ENCODER_STREAM_ERROR,
        ), error


@attack(
    family=FAMILY,
    source="RFC 9204 section 7.2",
    what="100 requests that wait for insertions that never arrive, followed by content",
    limit="16 blocked streams (QPACK_DECOMPRESSION_FAILED), `head_timeout`, `stream_window_bytes`",
    memory_mib=16,
    cpu_seconds=3,
)
def blocked_stream_flood(ground: Ground) -> None:
    h3 = ground.h3()
    h3.write(ENCODER_STREAM, prefixed(4096, 5, 0x20))
    waiting = frame(H3Frame.HEADERS, b"\x02\x00\x80" + field_section([])[2:]) + data(bytes(1000))
    for _ in range(100):
        h3.raw_request(waiting, fin=False)
    assert h3.settle() is not None
    assert h3.closed.code == H3Error.QPACK_DECOMPRESSION_FAILED, h3.closed
