"""Autobahn's server cases 1.1.1 to 9.8.6, by number, and compression like its cases 12 and 13.

Implemented from the published descriptions of the cases and run against an echo server: all of them
over HTTP/1.1, and over HTTP/2 and HTTP/3 those that depend on the transport. A case lists what is
sent, in which pieces, what must come back in order, and how it ends: with the client's close, or
with the server's, with one of some codes. Cases 9.* use smaller sizes to be quick: a quarter of
theirs or less, with as many frames.
"""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import dataclass, field

import pytest

from conftest import end
from harness.clients.raw_websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Frame,
    close_frame,
    open_websocket,
)
from harness.server import Server, echo_command

PROTOCOL_ERROR, NOT_UTF8 = (1002,), (1007,)

OTHERS = ["2", "3"]
CARRIED = {
    *(
        "1.1.1",
        "1.1.8",
        "1.2.7",
        "2.4",
        "2.6",
        "2.11",
        "3.1",
        "3.4",
        "4.1.5",
        "5.5",
        "5.8",
        "5.15",
        "5.20",
        "6.2.3",
        "6.3.2",
    ),
    *(
        "6.4.1",
        "6.4.4",
        "7.1.1",
        "7.1.5",
        "7.1.6",
        "7.3.1",
        "7.3.5",
        "7.5.1",
        "9.1.6",
        "9.2.1",
        "9.3.1",
        "9.4.5",
        "9.5.1",
    ),
    *("9.6.6", "9.7.1", "9.8.6", "12.1", "13.5"),
}
"""What HTTP/2 and HTTP/3 carry too.

The crate that reads and writes frames is sans-IO: it does not know the protocol. What a protocol can do to frames is to
cut them elsewhere, to hold them back for its windows, and to end: so these are large ones, chopped ones, many small
ones, and each kind of end.
"""


def over_each_protocol(names: str, values: list, number) -> pytest.MarkDecorator:
    """Returns each value over HTTP/1.1, and those whose number is in `CARRIED` over the others."""
    rows = [
        pytest.param(
            version,
            *(value if isinstance(value, tuple) else (value,)),
            id=f"{number(value)}-{version}",
        )
        for version in ["1.1", *OTHERS]
        for value in values
        if version == "1.1" or number(value) in CARRIED
    ]
    return pytest.mark.parametrize(f"version,{names}", rows)


@dataclass(frozen=True)
class Case:
    number: str
    send: list[Frame]
    expect: list[Frame] = field(default_factory=list)
    closes: tuple[int | None, ...] = ()
    """Close codes that the server may end with; none: the client closes with 1000, and gets it
    back.
    """
    chop: int | None = None


def text(payload: bytes | str = b"") -> Frame:
    return Frame(TEXT, payload.encode() if isinstance(payload, str) else payload)


def fragments(payload: bytes, *sizes: int, opcode: int = TEXT) -> list[Frame]:
    """Splits the payload into fragments of these sizes; the last one has the rest."""
    pieces = []
    for size in sizes:
        pieces.append(payload[:size])
        payload = payload[size:]
    pieces.append(payload)
    last = len(pieces) - 1
    return [
        Frame(CONTINUATION if at else opcode, piece, fin=at == last)
        for at, piece in enumerate(pieces)
    ]


def single_bytes(payload: bytes) -> list[Frame]:
    return fragments(payload, *[1] * (len(payload) - 1))


def cases() -> list[Case]:
    return [
        *framing(),
        *pings(),
        *reserved_bits(),
        *opcodes(),
        *fragmentation(),
        *utf8(),
        *closing(),
    ]


def framing():
    sizes = [0, 125, 126, 127, 128, 65535, 65536, 65536]
    for group, opcode, byte in ((1, TEXT, b"*"), (2, BINARY, b"\xfe")):
        for at, size in enumerate(sizes, 1):
            frame = Frame(opcode, byte * size)
            yield Case(f"1.{group}.{at}", [frame], [frame], chop=997 if at == 8 else None)


def pings():
    hello, binary, long = b"Hello, world!", b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff", b"\xfe" * 125
    for number, payload in (("2.1", b""), ("2.2", hello), ("2.3", binary), ("2.4", long)):
        yield Case(number, [Frame(PING, payload)], [Frame(PONG, payload)])
    yield Case("2.5", [Frame(PING, b"\xfe" * 126)], closes=PROTOCOL_ERROR)
    yield Case("2.6", [Frame(PING, long)], [Frame(PONG, long)], chop=1)
    yield Case("2.7", [Frame(PONG)])
    yield Case("2.8", [Frame(PONG, b"unsolicited pong payload")])
    yield Case("2.9", [Frame(PONG, b"unsolicited"), Frame(PING, b"ping")], [Frame(PONG, b"ping")])
    payloads = [f"payload-{at}".encode() for at in range(10)]
    for number, chop in (("2.10", None), ("2.11", 1)):
        yield Case(
            number,
            [Frame(PING, each) for each in payloads],
            [Frame(PONG, each) for each in payloads],
            chop=chop,
        )


def reserved_bits():
    hello = text("Hello, world!")
    yield Case("3.1", [Frame(TEXT, hello.payload, rsv=4)], closes=PROTOCOL_ERROR)
    for number, rsv, chop in (("3.2", 2, None), ("3.3", 3, None), ("3.4", 1, 1)):
        yield Case(
            number,
            [hello, Frame(TEXT, hello.payload, rsv=rsv), Frame(PING)],
            [hello],
            PROTOCOL_ERROR,
            chop,
        )
    for number, opcode, rsv in (("3.5", BINARY, 5), ("3.6", PING, 6), ("3.7", CLOSE, 7)):
        yield Case(
            number,
            [Frame(opcode, b"\x03\xe8" if opcode == CLOSE else b"payload", rsv=rsv)],
            closes=PROTOCOL_ERROR,
        )


def opcodes():
    hello = text("Hello, world!")
    for group, first in ((1, 3), (2, 11)):
        yield Case(f"4.{group}.1", [Frame(first)], closes=PROTOCOL_ERROR)
        yield Case(f"4.{group}.2", [Frame(first + 1, b"reserved")], closes=PROTOCOL_ERROR)
        for at, payload, chop in ((3, b"", None), (4, b"reserved", None), (5, b"reserved", 1)):
            sent = [hello, Frame(first - 1 + at, payload), Frame(PING)]
            yield Case(f"4.{group}.{at}", sent, [hello], PROTOCOL_ERROR, chop)


def fragmentation():
    whole = text("fragment1fragment2")
    first, second = fragments(whole.payload, 9)
    ping, pong = Frame(PING, b"ping payload"), Frame(PONG, b"ping payload")
    for number, opcode in (("5.1", PING), ("5.2", PONG)):
        yield Case(
            number, fragments(b"fragment1fragment2", 9, opcode=opcode), closes=PROTOCOL_ERROR
        )
    for number, chop in (("5.3", None), ("5.4", 15), ("5.5", 1)):
        yield Case(number, [first, second], [whole], chop=chop)
    for number, chop in (("5.6", None), ("5.7", 15), ("5.8", 1)):
        yield Case(number, [first, ping, second], [pong, whole], chop=chop)
    for start, fin in ((9, True), (12, False)):
        for at, chop in ((0, None), (1, 30), (2, 1)):
            sent = [Frame(CONTINUATION, b"nothing to continue", fin=fin), text("Hello, world!")]
            yield Case(f"5.{start + at}", sent, closes=PROTOCOL_ERROR, chop=chop)
    lone = Frame(CONTINUATION, b"fragment3", fin=False)
    yield Case("5.15", [first, second, lone, text("fragment4")], [whole], PROTOCOL_ERROR)
    for number, fin in (("5.16", False), ("5.17", True)):
        round_ = [
            Frame(CONTINUATION, b"fragment1", fin=fin),
            Frame(TEXT, b"fragment2", fin=False),
            Frame(CONTINUATION, b"3"),
        ]
        yield Case(number, round_ * 2, closes=PROTOCOL_ERROR)
    yield Case(
        "5.18",
        [Frame(TEXT, b"fragment1", fin=False), Frame(TEXT, b"fragment2")],
        closes=PROTOCOL_ERROR,
    )
    five = fragments(b"fragment1fragment2fragment3fragment4fragment5", 9, 9, 9, 9)
    pings = [Frame(PING, b"pongme 1!"), Frame(PING, b"pongme 2!")]
    sent = [*five[:2], pings[0], *five[2:4], pings[1], five[4]]
    expected = [
        *(Frame(PONG, each.payload) for each in pings),
        text(b"".join(each.payload for each in five)),
    ]
    yield Case("5.19", sent, expected)
    yield Case("5.20", sent, expected, chop=1)


KOSME = bytes.fromhex("cebae1bdb9cf83cebcceb5")
"""The Greek word of Markus Kuhn's UTF-8 examples."""


def utf8():
    yield Case("6.1.1", [text()], [text()])
    yield Case("6.1.2", fragments(b"", 0, 0), [text()])
    yield Case("6.1.3", fragments(b"middle", 0, 6), [text("middle")])
    greeting = "Hello-µ@ßöäüàá-UTF-8!!".encode()
    yield Case("6.2.1", [text(greeting)], [text(greeting)])
    yield Case("6.2.2", fragments(greeting, 12), [text(greeting)])
    yield Case("6.2.3", single_bytes(greeting), [text(greeting)])
    yield Case("6.2.4", single_bytes(KOSME), [text(KOSME)])
    broken = KOSME + b"\xed\xa0\x80edited"
    yield Case("6.3.1", [text(broken)], closes=NOT_UTF8)
    yield Case("6.3.2", single_bytes(broken), closes=NOT_UTF8)
    # Must fail at once: the rest of the message is never sent.
    late = fragments(KOSME + b"\xf4\x90\x80\x80edited", len(KOSME), 4)[:2]
    yield Case("6.4.1", late, closes=NOT_UTF8)
    earlier = fragments(KOSME + b"\xf4\x90\x80\x80edited", len(KOSME) + 1, 1)[:2]
    yield Case("6.4.2", earlier, closes=NOT_UTF8)
    # Within one frame, the rest of which is never sent.
    yield Case(
        "6.4.3", [PartialFrame(KOSME + b"\xf4\x90\x80\x80edited", 4 + len(KOSME))], closes=NOT_UTF8
    )
    yield Case(
        "6.4.4",
        [PartialFrame(KOSME + b"\xf4\x90\x80\x80edited", 2 + len(KOSME))],
        closes=NOT_UTF8,
        chop=1,
    )
    for group, (valid, payloads) in UTF8_SEQUENCES.items():
        for at, payload in enumerate(payloads, 1):
            yield sequence(f"6.{group}.{at}", payload, valid=valid)
    for at in range(1, len(KOSME) + 1):
        prefix = KOSME[:at]
        yield sequence(f"6.6.{at}", prefix, valid=is_utf8(prefix))


def sequence(number: str, payload: bytes, *, valid: bool) -> Case:
    assert valid == is_utf8(payload), number
    return Case(
        number, [text(payload)], [text(payload)] if valid else [], () if valid else NOT_UTF8
    )


def is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True)
class PartialFrame:
    """A text frame of which only the first bytes of the payload are sent."""

    payload: bytes
    sent: int

    def encode(self) -> bytes:
        whole = Frame(TEXT, self.payload).encode()
        return whole[: len(whole) - len(self.payload) + self.sent]


def hexes(*texts: str) -> list[bytes]:
    return [bytes.fromhex(each) for each in texts]


def lonely(*ranges: tuple[int, int]) -> list[bytes]:
    return [
        b"".join(bytes([byte]) + b" " for byte in range(first, last + 1)) for first, last in ranges
    ]


MISSING = [
    "c0",
    "e080",
    "f08080",
    "f8808080",
    "fc80808080",
    "df",
    "efbf",
    "f7bfbf",
    "fbbfbfbf",
    "fdbfbfbfbf",
]
NONCHARACTERS = [
    chr(plane << 16 | last).encode() for plane in range(17) for last in (0xFFFE, 0xFFFF)
]

UTF8_SEQUENCES: dict[int, tuple[bool, list[bytes]]] = {
    5: (
        True,
        [
            "Hello-µ@ßöäüàá-UTF-8!!".encode(),
            KOSME,
            "日本語テキスト".encode(),
            "Привет".encode(),
            "𝄞🙂".encode(),
        ],
    ),
    7: (True, hexes("00", "c280", "e0a080", "f0908080")),
    8: (False, hexes("f888808080", "fc8480808080")),
    9: (True, hexes("7f", "dfbf", "efbfbf", "f48fbfbf")),
    10: (False, hexes("f7bfbfbf", "fbbfbfbfbf", "fdbfbfbfbfbf")),
    11: (True, hexes("ed9fbf", "ee8080", "efbfbd", "f48fbfbf")),
    12: (
        False,
        hexes(
            "80",
            "bf",
            "80bf",
            "80bf80",
            "80bf80bf",
            "80bf80bf80",
            "80bf80bf80bf",
            bytes(range(0x80, 0xC0)).hex(),
        ),
    ),
    13: (False, lonely((0xC0, 0xDF), (0xE0, 0xEF), (0xF0, 0xF7), (0xF8, 0xFB), (0xFC, 0xFD))),
    14: (False, hexes(*MISSING)),
    15: (False, hexes("".join(MISSING))),
    16: (False, hexes("fe", "ff", "fefeffff")),
    17: (False, hexes("c0af", "e080af", "f08080af", "f8808080af", "fc80808080af")),
    18: (False, hexes("c1bf", "e09fbf", "f08fbfbf", "f887bfbfbf", "fc83bfbfbfbf")),
    19: (False, hexes("c080", "e08080", "f0808080", "f880808080", "fc8080808080")),
    20: (False, hexes("eda080", "edadbf", "edae80", "edafbf", "edb080", "edbe80", "edbfbf")),
    21: (
        False,
        hexes(
            *(
                first + second
                for first in ("eda080", "edadbf", "edae80", "edafbf")
                for second in ("edb080", "edbfbf")
            )
        ),
    ),
    22: (True, NONCHARACTERS),
    23: (True, hexes("efbfb9", "efbfba", "efbfbb", "efbfbc", "efbfbd", "efbfbe", "efbfbf")),
}


def closing():
    hello, normal = text("Hello World!"), close_frame(1000)
    yield Case("7.1.1", [hello, normal], [hello], (1000,))
    yield Case("7.1.2", [normal, normal], closes=(1000,))
    yield Case("7.1.3", [normal, Frame(PING, b"late")], closes=(1000,))
    yield Case("7.1.4", [normal, hello], closes=(1000,))
    yield Case(
        "7.1.5",
        [Frame(TEXT, b"fragment1", fin=False), normal, Frame(CONTINUATION, b"fragment2")],
        closes=(1000,),
    )
    large = text(b"BAsd7&jh23" * 26 * 1024)
    yield Case("7.1.6", [large, hello, normal, Frame(PING, b"late")], [large, hello], (1000,))
    yield Case("7.3.1", [close_frame(None)], closes=(None,))
    yield Case("7.3.2", [Frame(CLOSE, b"a")], closes=PROTOCOL_ERROR)
    yield Case("7.3.3", [normal], closes=(1000,))
    yield Case("7.3.4", [close_frame(1000, b"Hello World!")], closes=(1000,))
    yield Case("7.3.5", [close_frame(1000, b"*" * 123)], closes=(1000,))
    yield Case("7.3.6", [close_frame(1000, b"*" * 124)], closes=PROTOCOL_ERROR)
    yield Case("7.5.1", [close_frame(1000, KOSME + b"\xed\xa0\x80edited")], closes=NOT_UTF8)
    codes = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
    for at, code in enumerate(codes, 1):
        yield Case(f"7.7.{at}", [close_frame(code)], closes=(code,))
    for at, code in enumerate([0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999], 1):
        yield Case(f"7.9.{at}", [close_frame(code)], closes=PROTOCOL_ERROR)
    for at, code in enumerate([5000, 65535], 1):
        yield Case(f"7.13.{at}", [close_frame(code)], closes=PROTOCOL_ERROR)


@over_each_protocol("case", list(cases()), lambda case: case.number)
def test_case(handler, ca, version, case: Case):
    with open_websocket(version, handler.origin, ca) as wire:
        wire.send(case.send, case.chop)
        frames, came = wire.frames(), []
        if not case.closes:
            came = [next(frames) for _ in case.expect]
            wire.send([close_frame(1000)])
        came += frames
    assert came, "no frame came back"
    *messages, last = came
    assert last.opcode == CLOSE, f"the end is {last}"
    assert messages == case.expect
    code = struct.unpack("!H", last.payload[:2])[0] if last.payload else None
    assert code in (case.closes or (1000,))
    assert not wire.reset


# ---- size and number
# -------------------------------------------------------------------------------------------------

KIB, MIB = 1 << 10, 1 << 20

LARGE_BYTES = [64 * KIB, 256 * KIB, MIB, 2 * MIB, 3 * MIB, 4 * MIB]
"""Sizes of messages in one frame: 9.1 and 9.2."""
FRAGMENT_BYTES = [64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB]
"""Size of a message of at most 16,384 fragments: 9.3 and 9.4."""
CHOP_BYTES = [64, 128, 256, 512, 1024, 2048]
"""Size of the pieces handed to the transport at once: 9.5 and 9.6."""
SMALL_BYTES = [0, 16, 64, 256, KIB, 4 * KIB]
"""Number of messages, each sent after the echo of the last: 9.7 and 9.8."""

LIMITS = [
    (f"9.{group}.{at}", opcode, size)
    for first, sizes in ((1, LARGE_BYTES), (3, FRAGMENT_BYTES), (5, CHOP_BYTES), (7, SMALL_BYTES))
    for group, opcode in ((first, TEXT), (first + 1, BINARY))
    for at, size in enumerate(sizes, 1)
]


@pytest.fixture(scope="module")
def roomy(identity):
    """Starts the test handler with a message limit for these sizes."""
    server = Server(echo_command(identity, "--limit", "websocket_message_bytes=4MiB"))
    yield server
    end([server])


def payload(opcode: int, size: int) -> bytes:
    whole = "βάλτε ".encode() if opcode == TEXT else bytes(range(256))
    return (whole * (size // len(whole) + 1))[: size - size % 11 if opcode == TEXT else size]


@over_each_protocol("number,opcode,size", LIMITS, lambda limit: limit[0])
def test_large_messages_are_echoed(roomy, ca, version, number, opcode, size):
    group = int(number.split(".")[1])
    with open_websocket(version, roomy.origin, ca) as wire:
        frames = wire.frames()
        if group <= 2:
            whole = payload(opcode, size)
            wire.send([Frame(opcode, whole)])
            assert next(frames) == Frame(opcode, whole)
        elif group <= 4:
            whole = payload(opcode, min(4 * MIB, size * 16_384))
            sizes = [size] * ((len(whole) - 1) // size)
            wire.send(fragments(whole, *sizes, opcode=opcode))
            assert next(frames) == Frame(opcode, whole)
        elif group <= 6:
            whole = payload(opcode, 256 * KIB)
            wire.send([Frame(opcode, whole)], chop=size)
            assert next(frames) == Frame(opcode, whole)
        else:
            whole = payload(opcode, size)
            for _ in range(250):
                wire.send([Frame(opcode, whole)])
                assert next(frames) == Frame(opcode, whole)
        wire.send([close_frame(1000)])
        assert list(frames) == [close_frame(1000)]


# ---- compression
# -----------------------------------------------------------------------------------------------------

SIZES = [16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131072]

SETTINGS = {
    # Autobahn's group: the offer, and which sides keep their context if the server agrees.
    "12.1": "permessage-deflate",
    "13.1": "permessage-deflate; client_no_context_takeover",
    "13.2": "permessage-deflate; server_no_context_takeover",
    "13.3": "permessage-deflate; server_max_window_bits=9",
    "13.4": "permessage-deflate; server_max_window_bits=15; client_max_window_bits",
    "13.5": "permessage-deflate; server_max_window_bits=9; server_no_context_takeover; client_no_context_takeover",
    "13.7": "permessage-deflate; server_max_window_bits=8, permessage-deflate",
}


@pytest.mark.parametrize("query", ["deflate", "contexts"])
@over_each_protocol("group", list(SETTINGS), str)
def test_compressed_messages_are_echoed(handler, ca, version, group, query):
    source = random.Random(group)
    words = [f"word{source.randrange(10**6)}" for _ in range(200)]
    with open_websocket(
        version, handler.origin, ca, f"/ws?{query}", [("Sec-WebSocket-Extensions", SETTINGS[group])]
    ) as wire:
        answer = [part.strip() for part in wire.headers["sec-websocket-extensions"].split(";")]
        assert answer[0] == "permessage-deflate"
        bits = next(
            (
                int(part.partition("=")[2])
                for part in answer
                if part.startswith("server_max_window_bits")
            ),
            15,
        )
        if "server_max_window_bits=9" in SETTINGS[group]:
            assert bits == 9
        client_keeps, server_keeps = (
            "client_no_context_takeover" not in answer,
            "server_no_context_takeover" not in answer,
        )
        assert query == "contexts" or not (client_keeps or server_keeps)
        compressor, decompressor = zlib.compressobj(wbits=-15), zlib.decompressobj(-bits)
        frames = wire.frames()
        for size in SIZES:
            message = (
                " ".join(source.choice(words) for _ in range(size // 8)).encode().ljust(size)[:size]
            )
            packed = compressor.compress(message) + compressor.flush(zlib.Z_SYNC_FLUSH)
            packed = packed.removesuffix(b"\x00\x00\xff\xff")
            half = len(packed) // 2
            wire.send(
                [
                    Frame(TEXT, packed[:half], fin=False, rsv=4),
                    Frame(PING),
                    Frame(CONTINUATION, packed[half:]),
                ],
                chop=1000,
            )
            assert next(frames) == Frame(PONG)
            echoed = next(frames)
            assert (echoed.opcode, echoed.fin) == (TEXT, True)
            if echoed.rsv:
                assert echoed.rsv == 4
                assert size < 256 or len(echoed.payload) < size
                unpacked = decompressor.decompress(echoed.payload + b"\x00\x00\xff\xff")
            else:
                assert size < 256
                unpacked = echoed.payload
            assert unpacked == message
            if not client_keeps:
                compressor = zlib.compressobj(wbits=-15)
            if not server_keeps:
                decompressor = zlib.decompressobj(-bits)
        wire.send([close_frame(1000)])
        assert [frame.opcode for frame in frames] == [CLOSE]


@pytest.mark.parametrize("version", ["1.1", *OTHERS])
def test_compression_bomb_is_rejected(handler, ca, version):
    with open_websocket(
        version,
        handler.origin,
        ca,
        "/ws?deflate",
        [("Sec-WebSocket-Extensions", "permessage-deflate")],
    ) as wire:
        compressor = zlib.compressobj(wbits=-15)
        packed = b"".join(
            compressor.compress(bytes(1 << 20)) for _ in range(64)
        ) + compressor.flush(zlib.Z_SYNC_FLUSH)
        wire.send([Frame(BINARY, packed.removesuffix(b"\x00\x00\xff\xff"), rsv=4)])
        came = list(wire.frames())
    assert [(frame.opcode, frame.payload) for frame in came] == [(CLOSE, struct.pack("!H", 1009))]
