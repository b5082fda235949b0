"""Datagrams and bytes that are not HTTP: rejected or ignored as the RFCs require, counted, and the
server continues.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import ssl
import struct

import pytest
from aioquic.asyncio.client import connect
from aioquic.quic.configuration import QuicConfiguration

from conftest import SEED
from harness.clients.aioquic_h3 import h3_connection
from harness.clients.raw_h1 import RawH1

QUIC_V1 = 1
# RFC 9000 section 14.1: the smallest datagram that an Initial packet may come in.
SMALLEST_INITIAL = 1200


@pytest.fixture
def udp(server):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.connect((server.host, server.port))
        connection.settimeout(30)
        yield connection


def long_header(version: int, dcid: bytes, scid: bytes, first: int = 0xC0) -> bytes:
    return (
        bytes([first])
        + struct.pack(">I", version)
        + bytes([len(dcid)])
        + dcid
        + bytes([len(scid)])
        + scid
    )


def initial(size: int, version: int = QUIC_V1) -> bytes:
    """Returns an Initial packet whose protected part is noise, truncated or padded to a size."""
    head = long_header(version, b"\x11" * 8, b"\x22" * 8) + b"\x00" + b"\x44\x96"
    return (head + random.Random(SEED).randbytes(SMALLEST_INITIAL))[:size]


def serves_on(server, ca) -> None:
    async def ask() -> int:
        async with h3_connection(server.origin, ca) as client:
            return (await client.fetch("/small.txt")).status

    assert asyncio.run(ask()) == 200
    with RawH1(server.origin, ca) as client:
        assert client.fetch("/small.txt").status == 200


def answers_until_marker(udp: socket.socket) -> list[bytes]:
    """Returns all answers up to that to a last packet, which is always answered."""
    marker_dcid = b"\xfe" * 8
    udp.send(version_probe(0x1A2A3A4A, dcid=marker_dcid))
    answers = []
    while True:
        answer = udp.recv(65535)
        if answer[0] & 0x80 and marker_dcid in answer[:30]:
            return answers
        answers.append(answer)


def version_probe(
    version: int, *, dcid: bytes = b"\x33" * 8, scid: bytes = b"\x44" * 8, size=SMALLEST_INITIAL
) -> bytes:
    return long_header(version, dcid, scid).ljust(size, b"\x00")


@pytest.mark.parametrize("version", [0x0A1A2A3A, 0x00000002, 0xFF00001D, 0xFFFFFFFF])
def test_unknown_version_is_answered_with_version_negotiation(server, ca, udp, version):
    dcid, scid = b"\x01\x02\x03\x04\x05\x06\x07\x08", b"\x0a\x0b\x0c\x0d\x0e"
    udp.send(version_probe(version, dcid=dcid, scid=scid))
    answer = udp.recv(65535)
    # RFC 9000 section 17.2.1: version 0, the client's connection IDs swapped, then the supported
    # versions.
    assert answer[0] & 0x80
    assert answer[1:5] == b"\x00\x00\x00\x00"
    rest = answer[5:]
    assert rest[0] == len(scid)
    assert rest[1:6] == scid
    assert rest[6] == len(dcid)
    assert rest[7:15] == dcid
    versions = [version for (version,) in struct.iter_unpack(">I", rest[15:])]
    assert QUIC_V1 in versions
    assert version not in versions
    # RFC 9000 section 8.1: at most three times the received bytes before the address is validated.
    assert len(answer) <= 3 * SMALLEST_INITIAL
    serves_on(server, ca)


def test_small_datagram_of_unknown_version_is_not_answered(server, ca, udp):
    # RFC 9000 section 6.1 lets a server answer. Below the smallest Initial, the datagram looks like
    # spoofed traffic, and section 14.1 forbids an answer that amplifies.
    udp.send(version_probe(0x0A1A2A3A, size=60))
    answers = answers_until_marker(udp)
    assert sum(len(answer) for answer in answers) <= 3 * 60
    serves_on(server, ca)


@pytest.mark.parametrize("size", [1, 5, 7, 20, 40, 100, 600, 1199])
def test_truncated_initial_is_dropped(server, ca, udp, size):
    # RFC 9000 section 14.1: "A server MUST discard an Initial packet that is carried in a UDP
    # datagram with a payload that is smaller than the smallest allowed maximum datagram size of
    # 1200 bytes." It may close with a packet of its own, never with more than three times what
    # came.
    udp.send(initial(size))
    answers = answers_until_marker(udp)
    assert sum(len(answer) for answer in answers) <= 3 * size
    serves_on(server, ca)


def test_initial_that_does_not_decrypt_is_dropped(server, ca, udp):
    udp.send(initial(SMALLEST_INITIAL))
    assert answers_until_marker(udp) == []
    serves_on(server, ca)


def test_random_datagrams_are_dropped(server, ca, udp):
    source = random.Random(SEED)
    for _ in range(2000):
        udp.send(source.randbytes(source.randint(1, 1452)))
    # Flipped bits in a valid start of an Initial or short header reach deeper than noise does.
    for _ in range(500):
        packet = bytearray(initial(SMALLEST_INITIAL))
        for _ in range(source.randint(1, 8)):
            packet[source.randrange(60)] ^= 1 << source.randrange(8)
        udp.send(packet)
    for _ in range(500):
        udp.send(bytes([0x40 | source.randrange(64)]) + source.randbytes(source.randint(20, 100)))
    serves_on(server, ca)


def test_empty_datagrams_are_ignored(server, ca, udp):
    for _ in range(100):
        udp.send(b"")
    serves_on(server, ca)


def test_reflected_packets_are_not_answered(server, ca):
    # Two servers pointed at each other must not bounce packets forever: a Version Negotiation
    # packet and a stateless reset are never answered (RFC 9000 sections 6.1 and 10.3.3).
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.connect((server.host, server.port))
        udp.settimeout(30)
        negotiation = long_header(0, b"\x01" * 8, b"\x02" * 8) + struct.pack(">II", 1, 0x6B3343CF)
        udp.send(negotiation.ljust(SMALLEST_INITIAL, b"\x00"))
        assert answers_until_marker(udp) == []
    serves_on(server, ca)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00" * 64,
        b"\x16\x03\x01\xff\xff" + b"\x01" * 200,
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
    ],
    ids=["http1", "http2", "zeros", "oversized-record", "short-hello"],
)
def test_bytes_other_than_tls_are_rejected(server, ca, sent):
    with socket.create_connection((server.host, server.port), 30) as plain:
        plain.sendall(sent)
        plain.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while chunk := plain.recv(4096):
                answer += chunk
        except ConnectionResetError:
            pass
    # A TLS alert, an HTTP/1.1 error response, or silence; never a page.
    assert answer == b"" or answer[0] == 21 or re.match(rb"HTTP/1\.[01] 400 ", answer)
    serves_on(server, ca)


def test_tls_without_a_common_protocol_is_rejected(server, ca):
    # RFC 7301 section 3.2: no_application_protocol if the server supports none of the client's
    # protocols.
    context = ssl.create_default_context(cafile=str(ca))
    context.set_alpn_protocols(["spdy/3"])
    with (
        socket.create_connection((server.host, server.port), 30) as plain,
        pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"),
    ):
        context.wrap_socket(plain, server_hostname="127.0.0.1")
    serves_on(server, ca)


def test_h3_without_a_common_protocol_is_rejected(server, ca):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["hq-interop"])
    configuration.load_verify_locations(cafile=str(ca))

    async def run() -> None:
        async with connect(server.host, server.port, configuration=configuration):
            pass

    with pytest.raises(ConnectionError):
        asyncio.run(run())
    serves_on(server, ca)


def test_rejected_traffic_is_counted(start_serve, ca):
    server = start_serve("--stats")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.connect((server.host, server.port))
        udp.settimeout(30)
        for _ in range(10):
            udp.send(b"\x40" + random.Random(SEED).randbytes(15))
        for _ in range(7):
            udp.send(initial(600))
        assert answers_until_marker(udp) is not None
    for _ in range(3):
        with socket.create_connection((server.host, server.port), 30) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            plain.shutdown(socket.SHUT_WR)
            try:
                while plain.recv(4096):
                    pass
            except ConnectionResetError:
                pass
    serves_on(server, ca)
    server.terminate()
    assert server.wait() == 0, server.lines
    counters = server.counters()
    assert counters["datagrams_ignored"] >= 17
    assert counters["version_negotiations_sent"] == 1
    assert counters["tls_failed"] == 3
