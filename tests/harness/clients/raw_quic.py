"""A QUIC client that does what a test tells it, whether the RFC allows it or not.

It uses aioquic's TLS client and packet protection, but not its connection: no state machine can
refuse to send something. The handshake, acknowledgements, and retransmission of handshake messages
and stream data are automatic; everything else happens when the test says so.

    with RawQuic(server.origin, ca) as quic:
        quic.handshake()
        quic.send(quic_frames.new_token(b"x"))               # any bytes as frames, in any packet number space
        closed = quic.wait_closed()                          # the server's reaction
        assert (closed.layer, closed.code) == ("transport", TransportError.PROTOCOL_VIOLATION)

A test can modify:

| argument or attribute | changes |
|---|---|
| `edit_parameters` | the transport parameters, a dict of identifiers to bytes (in the order sent) |
| `edit_hello` | the ClientHello, bytes to bytes; the handshake continues with the result (`client_hello` helps) |
| `edit_crypto` | each flight of TLS messages before it goes into CRYPTO frames; TLS does not see the change |
| `edit_packet` | each `Packet` before it is protected: reserved bits, packet number, connection IDs, frames |
| `make_ack` | acknowledgements: false ACK frames, or none |
| `ticket`, `token` | resumption and 0-RTT (`quic.tickets` of an earlier connection), an address token |
| `port` | the UDP socket: many connections may share one, a connection may move to another |

All calls block, with the deadline of `waiting`. One thread per `Port`.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from aioquic import tls
from aioquic._crypto import CryptoError
from aioquic.buffer import Buffer
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicPacketType, QuicProtocolVersion, pull_quic_header

from ..waiting import DEADLINE_SECONDS
from . import quic_frames
from .quic_frames import Frame, FrameType
from .quic_packets import (
    LEVELS,
    SMALLEST_INITIAL,
    TAG_SIZE,
    Close,
    Incoming,
    Level,
    Numbers,
    Packet,
    Parameter,
    Parameters,
    Received,
    decode_parameters,
    default_parameters,
    encode_parameters,
    number_space,
)

CRYPTO_CHUNK = 1000
"""Bytes of a TLS flight per packet: fits the smallest datagram with every header."""
STREAM_CHUNK = 1100
ACK_RANGES = 32
"""Number of ranges in an ACK frame; the newest are kept."""
FIRST_PROBE_SECONDS = 0.4
"""Interval after which unacknowledged handshake messages and stream data are resent; doubles each
time.
"""


class ClosedError(ConnectionError):
    """The server closed the connection while the test waited for something else."""

    def __init__(self, close: Close | None, waited_for: str):
        super().__init__(f"{close or 'a stateless reset'} came while waiting for {waited_for}")
        self.close = close


class Port:
    """A UDP socket towards a server; its connections are distinguished by their connection IDs."""

    def __init__(self, origin: str, *, source: str = ""):
        url = urlsplit(origin)
        self.family = socket.AF_INET6 if ":" in url.hostname else socket.AF_INET
        self.socket = socket.socket(self.family, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((source, 0))
        self.socket.connect((url.hostname, url.port))
        self.connections: dict[bytes, RawQuic] = {}
        self.stray = 0
        """Datagrams without a connection on this port."""
        self.bytes_sent = 0
        self.bytes_received = 0

    def close(self) -> None:
        self.socket.close()

    def send(self, datagram: bytes) -> None:
        self.bytes_sent += len(datagram)
        # On a closed port, the next call fails. The test will see that no data arrives.
        with suppress(ConnectionRefusedError):
            self.socket.send(datagram)

    def receive(self, seconds: float) -> bool:
        """Waits for datagrams and passes all received ones to their connections; returns false if
        there were none.
        """
        if not select.select([self.socket], [], [], max(0.0, seconds))[0]:
            return False
        touched: dict[int, RawQuic] = {}
        while True:
            try:
                datagram = self.socket.recv(65535, socket.MSG_DONTWAIT)
            except (BlockingIOError, ConnectionRefusedError):
                break
            self.bytes_received += len(datagram)
            connection = self.connection_of(datagram)
            if connection is None:
                self.stray += 1
            else:
                connection.handle_datagram(datagram)
                touched[id(connection)] = connection
        for connection in touched.values():
            connection.acknowledge()
        return True

    def connection_of(self, datagram: bytes) -> RawQuic | None:
        if datagram[0] & 0x80:
            return self.connections.get(datagram[6 : 6 + datagram[5]])
        for size in {len(cid) for cid in self.connections}:
            if connection := self.connections.get(datagram[1 : 1 + size]):
                return connection
        if len(self.connections) == 1:
            # Possibly for a connection ID that the test has issued.
            return next(iter(self.connections.values()))
        # A stateless reset belongs to the connection that knows its token.
        return next(
            (each for each in self.connections.values() if datagram[-16:] in each.reset_tokens),
            None,
        )


class EditedTls(tls.Context):
    """aioquic's TLS, which continues with a ClientHello that the test has changed."""

    edit_hello: Callable[[bytes], bytes] | None = None

    def _client_send_hello(self, output_buf: Buffer) -> None:
        start = output_buf.tell()
        super()._client_send_hello(output_buf)
        if self.edit_hello is not None:
            hello = self.edit_hello(output_buf.data_slice(start, output_buf.tell()))
            output_buf.seek(start)
            output_buf.push_bytes(hello)
            self._key_schedule_proxy = tls.KeyScheduleProxy(self._cipher_suites)
            self._key_schedule_proxy.extract(None)
            self._key_schedule_proxy.update_hash(hello)


class RawQuic:
    """One connection. Sends nothing before `start` or `handshake`."""

    def __init__(
        self,
        origin: str,
        ca: Path | None = None,
        *,
        alpn: Sequence[str] | None = ("h3",),
        server_name: str | None = None,
        edit_parameters: Callable[[Parameters], Parameters | None] | None = None,
        edit_hello: Callable[[bytes], bytes] | None = None,
        edit_crypto: Callable[[Level, bytes], bytes] | None = None,
        edit_packet: Callable[[Packet], Packet | None] | None = None,
        cipher_suites: Sequence[tls.CipherSuite] | None = None,
        ticket: tls.SessionTicket | None = None,
        token: bytes = b"",
        version: int = QuicProtocolVersion.VERSION_1,
        dcid: bytes | None = None,
        scid: bytes | None = None,
        port: Port | None = None,
    ):
        """Creates a connection.

        Without `ca` the server's certificate is not verified, which saves time with many
        connections.

        `edit_hello` invalidates the binder of a ticket: use one or the other.
        """
        self.port = port or Port(origin)
        self._owns_port = port is None
        self.version = version
        self.token = token
        self.scid = os.urandom(8) if scid is None else scid
        self.original_dcid = os.urandom(8) if dcid is None else dcid
        self.peer_cid = self.original_dcid
        self.edit_packet = edit_packet
        self.edit_crypto = edit_crypto
        self.make_ack: Callable[[Level, list[range]], bytes | None] = lambda _level, ranges: (
            quic_frames.ack(ranges)
        )

        parameters = default_parameters(self.scid)
        if edit_parameters is not None:
            parameters = edit_parameters(parameters) or parameters
        self.parameters = parameters
        name = server_name or urlsplit(origin).hostname
        self._start_tls(name, alpn, ca, cipher_suites, edit_hello, ticket)

        self._cryptos = {level: CryptoPair() for level in Level}
        self._cryptos[Level.INITIAL].setup_initial(
            self.original_dcid, is_client=True, version=version
        )
        self.next_number = {Level.INITIAL: 0, Level.HANDSHAKE: 0, Level.ONE_RTT: 0}
        self._largest = {Level.INITIAL: -1, Level.HANDSHAKE: -1, Level.ONE_RTT: -1}
        self._seen = {level: Numbers() for level in self._largest}
        self._ack_due: set[Level] = set()
        self._crypto_in = {level: Incoming() for level in self._largest}
        self._crypto_read = dict.fromkeys(self._largest, 0)
        self._crypto_sent = dict.fromkeys(self._largest, 0)
        self._unacked: dict[Level, dict[int, tuple[Level, bytes]]] = {
            level: {} for level in self._largest
        }
        self._probe_seconds = FIRST_PROBE_SECONDS
        self._probe_at = float("inf")
        self._stream_sent: dict[int, int] = {}

        self.received: list[Received] = []
        """All received packets that could be decrypted, in order."""
        self.acked = {level: Numbers() for level in self._largest}
        """Our packets that the server has acknowledged."""
        self.streams: dict[int, Incoming] = {}
        self.tickets: list[tls.SessionTicket] = []
        self.tokens: list[bytes] = []
        self.peer_parameters: Parameters = {}
        self.peer_cids: dict[int, bytes] = {}
        """The server's connection IDs by sequence number."""
        self.reset_tokens: set[bytes] = set()
        self.offered_versions: list[int] | None = None
        """Versions of a Version Negotiation packet."""
        self.retries = 0
        self.bytes_received = 0
        self.confirmed = False
        self.closed: Close | None = None
        self.was_reset = False
        """Whether a stateless reset has arrived."""
        self.port.connections[self.scid] = self

    def _start_tls(self, name, alpn, ca, cipher_suites, edit_hello, ticket) -> None:
        self.tls = EditedTls(
            is_client=True,
            alpn_protocols=None if alpn is None else list(alpn),
            cafile=None if ca is None else str(ca),
            cipher_suites=None if cipher_suites is None else list(cipher_suites),
            server_name=name,
            verify_mode=ssl.CERT_NONE if ca is None else ssl.CERT_REQUIRED,
        )
        # One key share is enough for any server; all of them take four times as long to generate.
        self.tls._supported_groups = [tls.Group.X25519]
        self.tls.edit_hello = edit_hello
        self.tls.handshake_extensions = [
            (tls.ExtensionType.QUIC_TRANSPORT_PARAMETERS, encode_parameters(self.parameters))
        ]
        self.tls.session_ticket = ticket
        self.tls.new_session_ticket_cb = lambda new: self.tickets.append(new)
        self.tls.update_traffic_key_cb = self._on_key
        self._tls_out = {
            level: Buffer(capacity=1 << 17)
            for level in (Level.INITIAL, Level.HANDSHAKE, Level.ONE_RTT)
        }

    def __enter__(self) -> RawQuic:
        return self

    def __exit__(self, *_exception) -> None:
        """Closes the connection if the server has not, and releases it."""
        if (
            self.closed is None
            and not self.was_reset
            and self._cryptos[Level.ONE_RTT].send.is_valid()
        ):
            self.edit_packet = None
            self.send(quic_frames.application_close(0x100))
        self.vanish()

    def vanish(self) -> None:
        """Vanishes without a close."""
        self.port.connections.pop(self.scid, None)
        if self._owns_port:
            self.port.close()

    # The handshake.

    def hello(self) -> bytes:
        """Makes the ClientHello without sending it, for a test that sends its own CRYPTO frames."""
        self.tls.handle_message(b"", self._tls_out)
        return self._taken(Level.INITIAL)

    def start(self) -> RawQuic:
        """Sends the ClientHello."""
        self.send_crypto(self.hello(), Level.INITIAL)
        return self

    def handshake(self) -> RawQuic:
        """Runs until HANDSHAKE_DONE has arrived."""
        if self.tls.state == tls.State.CLIENT_HANDSHAKE_START:
            self.start()
        self.wait("the end of the handshake", lambda: self.confirmed)
        return self

    @property
    def has_keys(self) -> bool:
        """Returns whether 1-RTT packets can be sent."""
        return self._cryptos[Level.ONE_RTT].send.is_valid()

    @property
    def resumed(self) -> bool:
        return self.tls.session_resumed

    @property
    def early_data_accepted(self) -> bool:
        return self.tls.early_data_accepted

    # Sending.

    def packet(self, payload: bytes, level: Level = Level.ONE_RTT) -> Packet:
        """Returns a packet with the next number; `protect` makes it a datagram or part of one."""
        space = number_space(level)
        number = self.next_number[space]
        self.next_number[space] += 1
        return Packet(level, payload, number, self.peer_cid, self.scid, self.version, self.token)

    def protect(self, packet: Packet) -> bytes:
        crypto = self._cryptos[packet.level]
        header = packet.header(crypto.key_phase)
        return crypto.encrypt_packet(header, packet.payload, packet.number)

    def send(
        self, *frames: bytes, level: Level = Level.ONE_RTT, reliable: bool = False, **changes
    ) -> int:
        """Sends a packet in a separate datagram and returns its number; `changes` are fields of
        `Packet`.

        An Initial packet is padded to the smallest accepted size. A `reliable` one is resent with a
        new number until it is acknowledged.
        """
        packet = self.packet(b"".join(frames), level)
        for name, value in changes.items():
            setattr(packet, name, value)
        if self.edit_packet is not None:
            packet = self.edit_packet(packet) or packet
        if level == Level.INITIAL:
            missing = SMALLEST_INITIAL - TAG_SIZE - len(packet.header(0)) - len(packet.payload)
            packet.payload += bytes(max(0, missing))
        if reliable:
            self._unacked[number_space(level)][packet.number] = (level, b"".join(frames))
            if self._probe_at == float("inf"):
                self._probe_at = time.monotonic() + self._probe_seconds
        self.port.send(self.protect(packet))
        return packet.number

    def send_datagram(self, datagram: bytes) -> None:
        """Sends bytes as given, such as several protected packets in a row."""
        self.port.send(datagram)

    def send_crypto(self, data: bytes, level: Level) -> None:
        """Sends TLS messages in CRYPTO frames, after the earlier ones."""
        for at in range(0, len(data), CRYPTO_CHUNK):
            piece = data[at : at + CRYPTO_CHUNK]
            self.send(
                quic_frames.crypto(self._crypto_sent[level], piece), level=level, reliable=True
            )
            self._crypto_sent[level] += len(piece)

    def write(
        self, stream: int, data: bytes, *, fin: bool = False, level: Level = Level.ONE_RTT
    ) -> None:
        """Sends bytes on a stream after the earlier ones, ignoring windows."""
        at = 0
        while at < len(data) or (fin and at == len(data)):
            piece = data[at : at + STREAM_CHUNK]
            offset = self._stream_sent.get(stream, 0)
            last = at + len(piece) == len(data)
            self.send(
                quic_frames.stream(stream, piece, offset=offset, fin=fin and last),
                level=level,
                reliable=True,
            )
            self._stream_sent[stream] = offset + len(piece)
            at += max(len(piece), 1)

    def sent_on(self, stream: int) -> int:
        """Returns the number of bytes that `write` has sent on a stream."""
        return self._stream_sent.get(stream, 0)

    def update_key(self) -> None:
        """Uses the next keys for the next 1-RTT packet (RFC 9001 section 6), whether that is
        allowed now or not.
        """
        self._cryptos[Level.ONE_RTT].update_key()

    def move(self, port: Port) -> None:
        """Continues from another address."""
        del self.port.connections[self.scid]
        if self._owns_port:
            self.port.close()
            self._owns_port = False
        self.port = port
        port.connections[self.scid] = self

    # Waiting.

    def wait(
        self, what: str, condition: Callable[[], object], seconds: float = DEADLINE_SECONDS
    ) -> object:
        """Processes received data until the condition holds; returns its value."""
        deadline = time.monotonic() + seconds
        while True:
            if answer := condition():
                return answer
            if self.closed is not None or self.was_reset:
                raise ClosedError(self.closed, what)
            now = time.monotonic()
            if now > deadline:
                raise AssertionError(
                    f"{what}: not within {seconds} s; the last packets were {self.received[-3:]}"
                )
            self.turn(deadline)

    def wait_closed(self, seconds: float = DEADLINE_SECONDS) -> Close:
        self.wait("the close of the connection", lambda: self.closed, seconds)
        return self.closed

    def wait_stream(self, stream: int) -> Incoming:
        """Waits until a stream has ended or was reset."""
        incoming = self.streams.setdefault(stream, Incoming())
        self.wait(f"the end of stream {stream}", lambda: incoming.ended)
        return incoming

    def settle(self, rounds: int = 3) -> Close | None:
        """Waits until the server has processed all that was sent; returns the connection's end, or
        None if it is open.

        A packet with a PING is acknowledged after the data before it was processed. Reactions of an
        application above QUIC may follow in a later packet, so this takes a few rounds.
        """
        for _ in range(rounds):
            number = self.send(quic_frames.ping())
            try:
                self.wait(
                    "an acknowledgement", lambda number=number: number in self.acked[Level.ONE_RTT]
                )
            except ClosedError:
                return self.closed
        return None

    def turn(self, deadline: float) -> None:
        """Waits for datagrams once, and resends lost data."""
        now = time.monotonic()
        self.port.receive(min(deadline, self._probe_at) - now)
        if time.monotonic() >= self._probe_at:
            self._probe()

    def _probe(self) -> None:
        lost = [frames for space in self._unacked.values() for frames in space.values()]
        for space in self._unacked.values():
            space.clear()
        for level, frames in lost:
            self.send(frames, level=level, reliable=True)
        if not lost and not self.confirmed:
            # RFC 9002 section 6.2.2.1: the server may be blocked by the amplification limit.
            level = (
                Level.HANDSHAKE if self._cryptos[Level.HANDSHAKE].send.is_valid() else Level.INITIAL
            )
            self.send(quic_frames.ping(), level=level)
        self._probe_seconds *= 2
        self._arm()

    def _arm(self) -> None:
        waiting = not self.confirmed or any(self._unacked.values())
        self._probe_at = time.monotonic() + self._probe_seconds if waiting else float("inf")

    # Receiving.

    def handle_datagram(self, datagram: bytes) -> None:
        self.bytes_received += len(datagram)
        buffer = Buffer(data=datagram)
        while not buffer.eof():
            start = buffer.tell()
            try:
                header = pull_quic_header(buffer, host_cid_length=len(self.scid))
            except ValueError:
                self._check_reset(datagram)
                return
            if header.packet_type == QuicPacketType.VERSION_NEGOTIATION:
                self.offered_versions = header.supported_versions
                return
            if header.packet_type == QuicPacketType.RETRY:
                self._on_retry(header.source_cid, header.token)
                return
            packet = datagram[start : start + header.packet_length]
            offset = buffer.tell() - start
            buffer.seek(start + header.packet_length)
            level = LEVELS[header.packet_type]
            space = number_space(level)
            try:
                _, payload, number = self._cryptos[level].decrypt_packet(
                    packet, offset, self._largest[space] + 1
                )
            except CryptoError:
                if level == Level.ONE_RTT:
                    self._check_reset(datagram)
                continue
            if level == Level.INITIAL and self._largest[space] == -1:
                self.peer_cid = self.peer_cids[0] = header.source_cid
            self._on_packet(level, number, payload)

    def _check_reset(self, datagram: bytes) -> None:
        if datagram[-16:] in self.reset_tokens:
            self.was_reset = True

    def _on_retry(self, source_cid: bytes, token: bytes) -> None:
        self.retries += 1
        self.token = token
        self.peer_cid = source_cid
        self._cryptos[Level.INITIAL].setup_initial(source_cid, is_client=True, version=self.version)
        lost = list(self._unacked[Level.INITIAL].values())
        self._unacked[Level.INITIAL].clear()
        for level, frames in lost:
            self.send(frames, level=level, reliable=True)

    def _on_packet(self, level: Level, number: int, payload: bytes) -> None:
        space = number_space(level)
        if number in self._seen[space]:
            self._ack_due.add(level)
            return
        self._seen[space].add(range(number, number + 1))
        self._largest[space] = max(self._largest[space], number)
        frames = quic_frames.parse(payload)
        self.received.append(Received(level, number, frames))
        if any(frame.ack_eliciting for frame in frames):
            self._ack_due.add(level)
        for frame in frames:
            self._on_frame(level, frame)

    def _on_frame(self, level: Level, frame: Frame) -> None:
        match frame.type:
            case FrameType.ACK | FrameType.ACK_ECN:
                self._on_ack(number_space(level), frame.acknowledged)
            case FrameType.CRYPTO:
                self._on_crypto(level, *frame.fields)
            case FrameType.STREAM:
                stream, offset, data = frame.fields
                self.streams.setdefault(stream, Incoming()).insert(offset, data, frame.fin)
            case FrameType.RESET_STREAM:
                self.streams.setdefault(frame.fields[0], Incoming()).reset = frame.fields[1]
            case FrameType.STOP_SENDING:
                self.streams.setdefault(frame.fields[0], Incoming()).stopped = frame.fields[1]
            case FrameType.NEW_CONNECTION_ID:
                sequence, _, cid, reset_token = frame.fields
                self.peer_cids[sequence] = cid
                self.reset_tokens.add(reset_token)
            case FrameType.NEW_TOKEN:
                self.tokens.append(frame.fields[0])
            case FrameType.HANDSHAKE_DONE:
                self.confirmed = True
                for space in (Level.INITIAL, Level.HANDSHAKE):
                    self._unacked[space].clear()
                self._arm()
            case FrameType.CONNECTION_CLOSE if self.closed is None:
                code, blamed, reason = frame.fields
                self.closed = Close(
                    "transport", code, blamed, reason.decode(errors="replace"), level
                )
            case FrameType.APPLICATION_CLOSE if self.closed is None:
                code, reason = frame.fields
                self.closed = Close(
                    "application", code, None, reason.decode(errors="replace"), level
                )

    def _on_ack(self, space: Level, ranges: list[range]) -> None:
        for acknowledged in ranges:
            self.acked[space].add(acknowledged)
        unacked = self._unacked[space]
        before = len(unacked)
        for number in [number for number in unacked if number in self.acked[space]]:
            del unacked[number]
        if len(unacked) < before:
            self._probe_seconds = FIRST_PROBE_SECONDS
            self._arm()

    def _on_crypto(self, level: Level, offset: int, data: bytes) -> None:
        incoming = self._crypto_in[level]
        incoming.insert(offset, data)
        fresh = bytes(incoming.data[self._crypto_read[level] :])
        self._crypto_read[level] = len(incoming.data)
        if not fresh:
            return
        self.tls.handle_message(fresh, self._tls_out)
        if self.tls.received_extensions is not None and not self.peer_parameters:
            for kind, body in self.tls.received_extensions:
                if kind == tls.ExtensionType.QUIC_TRANSPORT_PARAMETERS:
                    self.peer_parameters = decode_parameters(body)
                    if token := self.peer_parameters.get(Parameter.STATELESS_RESET_TOKEN):
                        self.reset_tokens.add(token)
        for out in (Level.INITIAL, Level.HANDSHAKE):
            if flight := self._taken(out):
                self.send_crypto(flight, out)

    def _taken(self, level: Level) -> bytes:
        """Returns the pending TLS messages, as changed by the test."""
        data = self._tls_out[level].data
        self._tls_out[level].seek(0)
        return self.edit_crypto(level, data) if data and self.edit_crypto is not None else data

    def _on_key(
        self, direction: tls.Direction, level: Level, suite: tls.CipherSuite, secret: bytes
    ) -> None:
        pair = self._cryptos[level]
        context = pair.send if direction == tls.Direction.ENCRYPT else pair.recv
        context.setup(cipher_suite=suite, secret=secret, version=self.version)

    def acknowledge(self) -> None:
        """Sends the ACK frames that are due, as `make_ack` returns them."""
        if self.closed is None:
            for level in sorted(self._ack_due, key=lambda level: level.value):
                if not self._cryptos[level].send.is_valid():
                    continue
                if frame := self.make_ack(
                    level, self._seen[number_space(level)].ranges[-ACK_RANGES:]
                ):
                    self.send(frame, level=level)
        self._ack_due.clear()
