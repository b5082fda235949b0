"""Attacks on QUIC."""

from __future__ import annotations

import os
import random

from conftest import SEED
from harness.clients import quic_frames as frames
from harness.clients.quic_frames import VARINT_MAX, FrameType, varint
from harness.clients.quic_packets import SMALLEST_INITIAL, Level, Parameter, TransportError
from harness.clients.raw_quic import ClosedError, RawQuic

from .attack import Ground, attack

FAMILY = "QUIC"
ROUND = 50
"""Packets sent before the test waits for the server, so that none is lost to a full socket buffer.
"""


def flood(quic: RawQuic, payload, packets: int) -> int:
    """Sends many packets, each with `payload` of its number, until the connection ends; returns
    their number.
    """
    for number in range(packets):
        quic.send(payload(number))
        if number % ROUND == ROUND - 1 and quic.settle(1) is not None:
            return number + 1
    quic.settle(1)
    return packets


@attack(
    family=FAMILY,
    source="CVE-2023-6193 (quiche), CVE-2023-49295 (quic-go), CVE-2026-34183 (OpenSSL)",
    what="200,000 PATH_CHALLENGE frames in 2000 packets, from 20 addresses in turn, responses never acknowledged",
    limit="only the latest response for each address is queued; 16 addresses",
    memory_mib=16,
    cpu_seconds=5,
)
def path_challenge_flood(ground: Ground) -> None:
    quic = ground.connected()
    quic.make_ack = lambda _level, _ranges: None
    challenges = b"".join(frames.path_challenge(number.to_bytes(8, "big")) for number in range(100))
    flood(quic, lambda _: challenges, 100)
    responses = sum(
        frame.type == FrameType.PATH_RESPONSE for packet in quic.received for frame in packet.frames
    )
    assert 0 < responses <= 100
    # From another address: packets with only PATH_CHALLENGE do not move a connection (RFC 9000
    # section 9.1).
    for port in [ground.port() for _ in range(19)]:
        for _ in range(100):
            port.send(quic.protect(quic.packet(challenges)))
        port.receive(0.1)
        assert port.bytes_received <= 3 * port.bytes_sent
    assert quic.closed is None


@attack(
    family=FAMILY,
    source="RFC 9000 section 8.2.2",
    what="1000 PATH_CHALLENGE frames in the smallest packets, from 20 addresses that are never validated",
    limit="3 bytes for each one received from an address that is not the connection's",
    counters=("amplification_withheld",),
    memory_mib=16,
    cpu_seconds=3,
)
def path_challenge_reflection(ground: Ground) -> None:
    quic = ground.connected()
    for port in [ground.port() for _ in range(20)]:
        # Only the first: its response is always too large. A busy server answers the others
        # together, with one datagram.
        for challenges in (1, 49):
            for _ in range(challenges):
                port.send(quic.protect(quic.packet(frames.path_challenge())))
            # The server has received all of it, and answered.
            quic.settle(2)
        port.receive(0)
        assert port.bytes_received <= 3 * port.bytes_sent, (port.bytes_received, port.bytes_sent)
    assert quic.closed is None


@attack(
    family=FAMILY,
    source="CVE-2024-1410 (quiche), CVE-2024-22189 (quic-go), quiche f33411d5",
    what="up to 20,000 NEW_CONNECTION_ID frames that each retire the one before, while no RETIRE_CONNECTION_ID "
    "is acknowledged",
    limit="a limit on pending retirements: CONNECTION_ID_LIMIT_ERROR",
    memory_mib=16,
    cpu_seconds=3,
)
def connection_id_retirement_flood(ground: Ground) -> None:
    quic = ground.connected()
    quic.make_ack = lambda _level, _ranges: None

    def payload(number: int) -> bytes:
        sequences = range(1 + 20 * number, 1 + 20 * (number + 1))
        return b"".join(
            frames.new_connection_id(each, each, each.to_bytes(8, "big")) for each in sequences
        )

    flood(quic, payload, 1000)
    assert quic.closed is not None
    assert quic.closed.code == TransportError.CONNECTION_ID_LIMIT_ERROR, quic.closed


@attack(
    family=FAMILY,
    source="CVE-2024-22189 (quic-go), the other way round",
    what="3000 connection IDs of the server are retired as fast as it issues new ones",
    limit="8 connection IDs of a connection at once",
    memory_mib=16,
    cpu_seconds=5,
)
def retire_connection_id_flood(ground: Ground) -> None:
    quic = ground.connected()
    retired = 0
    while retired < 3000:
        # All but the newest, which the connection uses from then on.
        quic.wait(
            "new connection IDs", lambda retired=retired: max(quic.peer_cids, default=0) > retired
        )
        newest = max(quic.peer_cids)
        quic.peer_cid = quic.peer_cids[newest]
        quic.send(
            b"".join(frames.retire_connection_id(each) for each in range(retired, newest)),
            reliable=True,
        )
        retired = newest
        # At most the limit are stored.
        quic.settle(1)
    assert quic.closed is None


@attack(
    family=FAMILY,
    source="CVE-2024-1765 (quiche), haproxy#3076",
    what="100 handshakes without their first byte: each sends 7000 bytes of CRYPTO, one byte in each "
    "frame with gaps",
    limit="16 KiB of out-of-order CRYPTO for each handshake (CRYPTO_BUFFER_EXCEEDED), `handshake_timeout`",
    memory_mib=32,
    cpu_seconds=10,
)
def crypto_flood_with_gaps(ground: Ground) -> None:
    port = ground.port()
    for _ in range(100):
        quic = ground.quic(port=port)
        quic.hello()
        for start in range(1, 14_000, 400):
            quic.send(
                b"".join(frames.crypto(at, b"\x01") for at in range(start, start + 400, 2)),
                level=Level.INITIAL,
            )
        port.receive(0)


@attack(
    family=FAMILY,
    source="lsquic#680, haproxy#3076, nginx#1616",
    what="20 ClientHellos byte by byte, in random order: unusual, but valid",
    limit="none needed: each handshake completes",
    memory_mib=16,
    cpu_seconds=3,
)
def crypto_reordered(ground: Ground) -> None:
    source = random.Random(SEED)
    for _ in range(20):
        quic = ground.quic()
        hello = quic.hello()
        pieces = [frames.crypto(at, hello[at : at + 1]) for at in range(len(hello))]
        source.shuffle(pieces)
        for at in range(0, len(pieces), 60):
            quic.send(b"".join(pieces[at : at + 60]), level=Level.INITIAL, reliable=True)
        quic.wait("the end of the handshake", lambda quic=quic: quic.confirmed)


@attack(
    family=FAMILY,
    source="CVE-2025-4820 (quiche)",
    what="a download of 10 MiB whose packets are acknowledged before they arrive, all numbers without a gap",
    limit="the server skips numbers; an acknowledged one of those is a PROTOCOL_VIOLATION",
    memory_mib=24,
    cpu_seconds=3,
)
def optimistic_ack(ground: Ground) -> None:
    quic = ground.h3()
    quic.make_ack = lambda _level, ranges: frames.ack([range(0, ranges[-1].stop)])
    try:
        for _ in range(20):
            quic.fetch("/big.bin")
    except ClosedError:
        pass
    assert quic.closed is not None
    assert quic.closed.code == TransportError.PROTOCOL_VIOLATION, quic.closed


@attack(
    family=FAMILY,
    source="CVE-2025-54939 (LSQUIC, QUIC-LEAK), arXiv 2412.08936 (QFAM)",
    what="4000 ClientHellos, none of which continues after the server's response",
    limit="`open_handshakes`, `connections_per_client`: then Retry, which keeps no state; `handshake_timeout`",
    counters=("quic_retries_sent",),
    memory_mib=96,
    cpu_seconds=8,
)
def half_open_handshakes(ground: Ground) -> None:
    port = ground.port()
    # The ClientHello contains this connection ID; the server distinguishes the attempts by their
    # destination IDs.
    scid = bytes(8)
    hello = ground.quic(port=port, scid=scid).hello()
    for number in range(4000):
        quic = ground.quic(port=port, scid=scid)
        quic.send(frames.crypto(0, hello), level=Level.INITIAL)
        quic.vanish()
        if number % ROUND == 0:
            port.receive(0)
    port.receive(0)
    # Each was answered once; after the limit only with Retry.
    assert port.bytes_received <= 3 * port.bytes_sent


@attack(
    family=FAMILY,
    source="CVE-2026-26081 (HAProxy)",
    what="2000 Initials with random tokens, truncated tokens, and tokens of every length up to 900 bytes",
    limit="a token that does not decrypt validates nothing; INVALID_TOKEN or an ordinary handshake",
    memory_mib=96,
    cpu_seconds=8,
)
def malformed_token(ground: Ground) -> None:
    source = random.Random(SEED)
    port = ground.port()
    scid = bytes(8)
    hello = ground.quic(port=port, scid=scid).hello()
    for number in range(2000):
        quic = ground.quic(port=port, scid=scid, token=source.randbytes(number % 900))
        quic.send(frames.crypto(0, hello[: 1100 - number % 900]), level=Level.INITIAL)
        quic.vanish()
        if number % ROUND == 0:
            port.receive(0)
    # A token length beyond the end of the packet.
    for size in (1 << 10, 1 << 29, VARINT_MAX):
        head = b"\xc0\x00\x00\x00\x01\x08" + os.urandom(8) + b"\x08" + os.urandom(8)
        port.send((head + varint(size, size=8)).ljust(SMALLEST_INITIAL, b"\x00"))
    port.receive(0)


@attack(
    family=FAMILY,
    source="draft-chen-quic-logical-vuln-mitigations",
    what="5000 1-RTT packets of 1400 bytes that contain only PADDING",
    limit="no packet is answered; each costs only its decryption",
    memory_mib=16,
    cpu_seconds=8,
)
def padding_flood(ground: Ground) -> None:
    quic = ground.connected()
    before = quic.port.bytes_received
    flood(quic, lambda _: frames.padding(1400), 5000)
    assert quic.closed is None
    # The only response is for the PING that ends each round.
    assert quic.port.bytes_received - before < 1000 * 5000 // ROUND


@attack(
    family=FAMILY,
    source="draft-chen-quic-logical-vuln-mitigations",
    what="2.4 million PING frames in 2000 packets",
    limit="one acknowledgement covers two packets or more",
    memory_mib=16,
    cpu_seconds=5,
)
def ping_flood(ground: Ground) -> None:
    quic = ground.connected()
    before = quic.port.bytes_received
    flood(quic, lambda _: frames.ping() * 1200, 2000)
    assert quic.closed is None
    assert quic.port.bytes_received - before < 2000 * 100


@attack(
    family=FAMILY,
    source="draft-chen-quic-logical-vuln-mitigations",
    what="1000 packets that each skip a number, so that acknowledgements have endless ranges; and 1000 ACK frames "
    "of 250 ranges",
    limit="64 ranges are stored",
    memory_mib=16,
    cpu_seconds=4,
)
def ack_range_flood(ground: Ground) -> None:
    quic = ground.connected()
    for number in range(1000):
        quic.next_number[Level.ONE_RTT] += 1
        quic.send(frames.ping())
        if number % ROUND == 0:
            quic.settle(1)
    quic.settle(1)
    longest = max(len(frame.acknowledged) for packet in quic.received for frame in packet.frames)
    assert longest <= 64, longest
    # The server's packet numbers, repeatedly, in ranges of one.
    newest = quic.received[-1].number
    ranges = [range(each, each + 1) for each in range(newest % 2, newest + 1, 2)][-250:]
    known = {packet.number for packet in quic.received if packet.level == Level.ONE_RTT}
    ranges = [each for each in ranges if each.start in known] or [range(newest, newest + 1)]
    flood(quic, lambda _: frames.ack(ranges), 1000)
    assert quic.closed is None


@attack(
    family=FAMILY,
    source="draft-chen-quic-logical-vuln-mitigations",
    what="up to 130,000 bytes of a request, one in each STREAM frame with every second one missing",
    limit="1024 gaps in a stream: the connection is closed with INTERNAL_ERROR",
    memory_mib=16,
    cpu_seconds=3,
)
def stream_data_with_gaps(ground: Ground) -> None:
    quic = ground.h3()

    def payload(number: int) -> bytes:
        first = 1 + 200 * number
        return b"".join(frames.stream(0, b"\x00", offset=at) for at in range(first, first + 200, 2))

    flood(quic, payload, 1300)
    assert quic.closed is not None
    assert "too many gaps" in quic.closed.reason, quic.closed


@attack(
    family=FAMILY,
    source="the same, below the limit of one stream",
    what="90,000 bytes on 100 requests of a connection, one in each STREAM frame with every second one missing",
    limit="`stream_window_bytes`, `concurrent_streams`; small pieces are merged",
    memory_mib=32,
    cpu_seconds=10,
)
def stream_data_with_gaps_on_many_streams(ground: Ground) -> None:
    quic = ground.h3()

    def payload(number: int) -> bytes:
        stream, part = 4 * (number // 9), number % 9
        first = 1 + 200 * part
        return b"".join(
            frames.stream(stream, b"\x00", offset=at) for at in range(first, first + 200, 2)
        )

    flood(quic, payload, 900)
    assert quic.closed is None


@attack(
    family=FAMILY,
    source="CVE-2026-31812 (quinn, RUSTSEC-2026-0037), RUSTSEC-2023-0063, CVE-2024-45311",
    what="each transport parameter at 0, 2^62-1 and out of range, and 150 handshakes with random parameters",
    limit="TRANSPORT_PARAMETER_ERROR, or a value that is clamped to the supported range",
    memory_mib=16,
    cpu_seconds=5,
)
def transport_parameter_extremes(ground: Ground) -> None:
    source = random.Random(SEED)
    values = [
        b"",
        varint(0),
        varint(VARINT_MAX),
        varint((1 << 60) + 1),
        varint(1),
        b"\xc0",
        varint(1) + b"\x00",
    ]
    changes = [{each: value} for each in Parameter for value in values]
    changes += [{each: varint(VARINT_MAX) for each in INTEGERS}]
    noise = [0, 1, 5, 8, 16, 20, 64]
    changes += [
        {source.choice(list(Parameter)): source.randbytes(source.choice(noise))} for _ in range(150)
    ]
    port = ground.port()
    completed = 0
    for change in changes:
        quic = ground.quic(
            port=port, edit_parameters=lambda parameters, change=change: {**parameters, **change}
        )
        try:
            quic.handshake()
            completed += 1
            quic.send(frames.application_close(0x100))
        except ClosedError as error:
            assert error.close.code in REFUSALS, error
        quic.vanish()
    assert 0 < completed < len(changes)


REFUSALS = (TransportError.TRANSPORT_PARAMETER_ERROR, TransportError.PROTOCOL_VIOLATION)
INTEGERS = [
    Parameter.MAX_IDLE_TIMEOUT,
    Parameter.MAX_UDP_PAYLOAD_SIZE,
    Parameter.INITIAL_MAX_DATA,
    Parameter.INITIAL_MAX_STREAM_DATA_BIDI_LOCAL,
    Parameter.INITIAL_MAX_STREAM_DATA_BIDI_REMOTE,
    Parameter.INITIAL_MAX_STREAM_DATA_UNI,
    Parameter.ACTIVE_CONNECTION_ID_LIMIT,
]


@attack(
    family=FAMILY,
    source="CVE-2026-40460 (nginx)",
    what="a connection moves to an address that never answers a PATH_CHALLENGE, and requests 20 big files from there",
    limit="3 bytes for each one received from an unvalidated address, and up to two datagrams",
    memory_mib=16,
    cpu_seconds=3,
)
def unvalidated_path(ground: Ground) -> None:
    quic = ground.h3()
    assert quic.is_served("/small.txt")
    forged = ground.port()
    quic.move(forged)
    quic.make_ack = lambda _level, _ranges: None
    for _ in range(20):
        quic.request(quic.get("/big.bin"))
    # Until three of the server's timeouts have passed without a byte.
    silent = 0
    while silent < 3:
        silent = 0 if forged.receive(0.5) else silent + 1
    # The library sends a whole datagram if any anti-amplification credit is left (quinn#1082), and
    # an MTU probe without checking the credit.
    assert 0 < forged.bytes_received <= 3 * forged.bytes_sent + 2 * 1500, (
        forged.bytes_received,
        forged.bytes_sent,
    )


@attack(
    family=FAMILY,
    source="GHSA-2ch5-p59c-7mv6 (quicly)",
    what="20,000 packets without a connection, each of which triggers a stateless reset",
    limit="`stateless_resets_per_second`, `waiting_answers`",
    counters=("stateless_resets_withheld",),
    memory_mib=16,
    cpu_seconds=3,
)
def stateless_reset_exhaustion(ground: Ground) -> None:
    source = random.Random(SEED)
    port = ground.port()
    for number in range(20_000):
        port.send(b"\x40" + source.randbytes(60))
        if number % 500 == 0:
            port.receive(0.01)
    port.receive(0)
    assert port.bytes_received < port.bytes_sent // 10


@attack(
    family=FAMILY,
    source="CVE-2026-44434 (quicly)",
    what="2000 datagrams that look like stateless resets with random tokens, to a connection from its own address",
    limit="only the token that the peer has sent ends a connection",
    memory_mib=16,
    cpu_seconds=4,
)
def stateless_reset_injection(ground: Ground) -> None:
    source = random.Random(SEED)
    h3 = ground.h3()
    for number in range(2000):
        datagram = (
            b"\x40" + (h3.peer_cid if number % 2 else source.randbytes(8)) + source.randbytes(30)
        )
        h3.send_datagram(datagram + (bytes(16) if number % 3 else source.randbytes(16)))
        if number % ROUND == 0:
            h3.settle(1)
    assert h3.is_served("/small.txt")


@attack(
    family=FAMILY,
    source="draft-chen-quic-logical-vuln-mitigations",
    what="10,000 datagrams of unknown versions, of 1200 bytes and of 100",
    limit="`waiting_answers`; no answer is larger than its trigger",
    counters=("version_negotiations_sent",),
    memory_mib=16,
    cpu_seconds=3,
)
def version_negotiation_flood(ground: Ground) -> None:
    port = ground.port()
    for number in range(10_000):
        version, dcid = (0x1A2A3A4A + number).to_bytes(4, "big"), number.to_bytes(8, "big")
        head = b"\xc0" + version + b"\x08" + dcid + b"\x08" + bytes(8)
        port.send(head.ljust(SMALLEST_INITIAL if number % 2 else 100, b"\x00"))
        if number % ROUND == 0:
            port.receive(0)
    port.receive(0)
    assert port.bytes_received < port.bytes_sent


@attack(
    family=FAMILY,
    source="draft-chen-quic-logical-vuln-mitigations",
    what="100,000 MAX_DATA, DATA_BLOCKED and STREAMS_BLOCKED frames with values that change nothing",
    limit="none of them is answered or stored",
    memory_mib=16,
    cpu_seconds=3,
)
def blocked_and_window_frame_flood(ground: Ground) -> None:
    quic = ground.h3()
    blocked = frames.streams_blocked(1, bidi=True) + frames.streams_blocked(1, bidi=False)
    burst = (frames.max_data(1) + frames.data_blocked(1) + blocked) * 50
    flood(quic, lambda _: burst, 500)
    assert quic.closed is None
    assert quic.is_served("/small.txt")
