"""The Keyless SSL protocol and a client of it, written from the published description of gokeyless."""

from __future__ import annotations

import hashlib
import socket
import ssl
import struct
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

OPCODE, PAYLOAD, SKI, PADDING = 0x11, 0x12, 0x04, 0x20
PING, PONG, RESPONSE, ERROR = 0xF1, 0xF2, 0xF0, 0xFF
RSA_SIGN_SHA256, RSA_PSS_SIGN_SHA256 = 0x05, 0x35
ECDSA_SIGN_SHA256, ECDSA_SIGN_SHA384 = 0x15, 0x16
KEY_NOT_FOUND, BAD_OPCODE = 2, 5


@dataclass(frozen=True)
class Answer:
    number: int
    opcode: int
    payload: bytes


def ski(public_key) -> bytes:
    """Returns the identifier of a key: SHA-1 of the bit string in its SubjectPublicKeyInfo."""
    form = PublicFormat.UncompressedPoint if hasattr(public_key, "curve") else PublicFormat.PKCS1
    encoding = Encoding.X962 if hasattr(public_key, "curve") else Encoding.DER
    return hashlib.sha1(public_key.public_bytes(encoding, form)).digest()


class Keyless:
    """A connection to a signer, with a client certificate."""

    def __init__(self, port: int, ca: Path, cert: Path, key: Path):
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(cert, key)
        self._tcp = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._tls = context.wrap_socket(self._tcp, server_hostname="localhost")

    def send(self, number: int, opcode: int, payload: bytes = b"", key: bytes = b"") -> None:
        self._tls.sendall(message(number, opcode, payload, key))

    def receive(self) -> Answer:
        major, _minor, length, number = struct.unpack(">BBHI", self._exactly(8))
        assert major == 1
        received = items(self._exactly(length))
        return Answer(number, received[OPCODE][0], received.get(PAYLOAD, b""))

    def ask(self, *arguments) -> Answer:
        self.send(*arguments)
        return self.receive()

    def is_closed(self) -> bool:
        """Waits for the signer to send or close."""
        try:
            return self._tls.recv(1) == b""
        except (ConnectionResetError, ssl.SSLError):
            return True

    def close(self) -> None:
        self._tls.close()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._tls.recv(count - len(data))
            if not piece:
                raise EOFError(f"closed after {len(data)} of {count} bytes")
            data += piece
        return data


def message(number: int, opcode: int, payload: bytes = b"", key: bytes = b"") -> bytes:
    body = item(OPCODE, bytes([opcode]))
    if payload:
        body += item(PAYLOAD, payload)
    if key:
        body += item(SKI, key)
    body += item(PADDING, bytes(max(0, 1024 - 8 - 3 - len(body))))
    return struct.pack(">BBHI", 1, 0, len(body), number) + body


def items(body: bytes) -> dict[int, bytes]:
    """Parses the items of a message."""
    found = {}
    while body:
        tag, size = struct.unpack(">BH", body[:3])
        found[tag] = body[3 : 3 + size]
        body = body[3 + size :]
    return found


def item(tag: int, value: bytes) -> bytes:
    return struct.pack(">BH", tag, len(value)) + value
