"""Extracts a ClientHello from recorded datagrams: Initial keys are not secret (RFC 9001 section
5.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aioquic.buffer import Buffer
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicPacketType, pull_quic_header

from .client_hello import ClientHello, Extension
from .quic_frames import FrameType, parse
from .quic_packets import Incoming

X25519_MLKEM768 = 0x11EC
"""The hybrid group with a post-quantum part."""


@dataclass(frozen=True)
class RecordedHello:
    hello: ClientHello
    packets: int
    """Number of packets with the message."""
    offsets: list[int]
    """Offsets of its pieces, in sending order."""

    @property
    def extensions(self) -> list[int]:
        """Returns the extension types in sending order, without reserved ones (RFC 8701)."""
        return [kind for kind, _ in self.hello.extensions if not reserved(kind)]

    @property
    def key_shares(self) -> list[int]:
        """Returns the groups with a key share, without reserved ones (RFC 8446 section 4.2.8)."""
        buffer = Buffer(data=dict(self.hello.extensions)[Extension.KEY_SHARE])
        buffer.pull_uint16()
        groups = []
        while not buffer.eof():
            groups.append(buffer.pull_uint16())
            buffer.pull_bytes(buffer.pull_uint16())
        return [group for group in groups if not reserved(group)]


def reserved(value: int) -> bool:
    return value & 0x0F0F == 0x0A0A and value >> 8 == value & 0xFF


def recorded_hello(datagrams: Iterable[bytes]) -> RecordedHello:
    """Extracts the hello of the first connection attempt of one client's datagrams."""
    crypto = None
    came, offsets, packets = Incoming(), [], 0
    for datagram in datagrams:
        buffer = Buffer(data=datagram)
        header = pull_quic_header(buffer, host_cid_length=0)
        if header.packet_type != QuicPacketType.INITIAL:
            continue
        if crypto is None:
            crypto = CryptoPair()
            crypto.setup_initial(
                cid=header.destination_cid, is_client=False, version=header.version
            )
        packet = datagram[: header.packet_length]
        _, payload, _ = crypto.decrypt_packet(packet, buffer.tell(), packets)
        pieces = [frame.fields for frame in parse(payload) if frame.type == FrameType.CRYPTO]
        packets += 1
        for offset, data in pieces:
            offsets.append(offset)
            came.insert(offset, data)
        message = bytes(came.data)
        if len(message) >= 4 and len(message) == 4 + int.from_bytes(message[1:4], "big"):
            return RecordedHello(ClientHello.parse(message), packets, offsets)
    raise AssertionError("no whole ClientHello among the datagrams")
