"""Parses and serializes a TLS ClientHello (RFC 8446 section 4.1.2), to send one that no library
would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

Extensions = list[tuple[int, bytes]]


class Extension(IntEnum):
    SERVER_NAME = 0x0000
    SUPPORTED_GROUPS = 0x000A
    SIGNATURE_ALGORITHMS = 0x000D
    ALPN = 0x0010
    PADDING = 0x0015
    PRE_SHARED_KEY = 0x0029
    EARLY_DATA = 0x002A
    SUPPORTED_VERSIONS = 0x002B
    PSK_KEY_EXCHANGE_MODES = 0x002D
    KEY_SHARE = 0x0033
    QUIC_TRANSPORT_PARAMETERS = 0x0039


CLIENT_HELLO = 1
"""Type of the handshake message."""


def handshake_message(message_type: int, body: bytes) -> bytes:
    return bytes([message_type]) + len(body).to_bytes(3, "big") + body


@dataclass
class ClientHello:
    fixed: bytes
    """Version, random, session ID, cipher suites, compression methods: all fields before the
    extensions.
    """
    extensions: Extensions

    @classmethod
    def parse(cls, message: bytes) -> ClientHello:
        body = message[4:]
        at = 2 + 32
        at += 1 + body[at]
        at += 2 + int.from_bytes(body[at : at + 2], "big")
        at += 1 + body[at]
        extensions: Extensions = []
        rest = body[at + 2 :]
        while rest:
            size = int.from_bytes(rest[2:4], "big")
            extensions.append((int.from_bytes(rest[:2], "big"), rest[4 : 4 + size]))
            rest = rest[4 + size :]
        return cls(body[:at], extensions)

    def encode(self) -> bytes:
        block = b"".join(
            kind.to_bytes(2, "big") + len(body).to_bytes(2, "big") + body
            for kind, body in self.extensions
        )
        return handshake_message(CLIENT_HELLO, self.fixed + len(block).to_bytes(2, "big") + block)


def with_extensions(edit: Callable[[Extensions], Extensions]) -> Callable[[bytes], bytes]:
    """Returns an `edit_hello` for `RawQuic` that changes the list of extensions: order, number or
    content.
    """

    def edited(message: bytes) -> bytes:
        hello = ClientHello.parse(message)
        hello.extensions = edit(hello.extensions)
        return hello.encode()

    return edited
