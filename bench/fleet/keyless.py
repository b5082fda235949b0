"""A pipelined client of the Keyless SSL protocol that costs little processor time itself.

A message has a header (version, length of the body, ID) and a body of items (tag, length, value),
padded to 1 KiB.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

OPCODE, PAYLOAD, SKI, PADDING = 0x11, 0x12, 0x04, 0x20
RESPONSE, ERROR = 0xF0, 0xFF
RSA_PSS_SHA256, ECDSA_SHA256 = 0x35, 0x15
OPCODES = {"rsa2048": RSA_PSS_SHA256, "p256": ECDSA_SHA256}
HEADER = struct.Struct(">BBHI")
PADDED_BYTES = 1024
OUTSTANDING = 256
"""Requests without an answer: a fourth of what a signer allows, so it never stops to read."""
ANSWER_SECONDS = 30


class KeylessError(Exception):
    """A signer did not sign."""


def item(tag: int, value: bytes) -> bytes:
    return struct.pack(">BH", tag, len(value)) + value


def request(number: int, opcode: int, digest: bytes, ski: bytes) -> bytes:
    body = item(OPCODE, bytes([opcode])) + item(PAYLOAD, digest) + item(SKI, ski)
    body += item(PADDING, bytes(max(0, PADDED_BYTES - len(body) - 3)))
    return HEADER.pack(1, 0, len(body), number) + body


class Answers:
    """Splits received bytes into answers, and counts them."""

    def __init__(self):
        self.rest = b""
        self.first: bytes | None = None
        """The first signature."""

    def add(self, data: bytes) -> int:
        """Returns the number of signatures that are complete now."""
        data, at, count = self.rest + data, 0, 0
        while len(data) - at >= HEADER.size:
            major, _, length, _ = HEADER.unpack_from(data, at)
            if major != 1:
                raise KeylessError(f"the signer speaks version {major} of the protocol, not 1")
            start, end = at + HEADER.size, at + HEADER.size + length
            if len(data) < end:
                break
            # The opcode is the first item of every known signer; others are found by their tag.
            if data[start : start + 3] != b"\x11\x00\x01" or data[start + 3] != RESPONSE:
                self.check(data[start:end])
            if self.first is None:
                self.first = items(data[start:end]).get(PAYLOAD, b"")
            at, count = end, count + 1
        self.rest = data[at:]
        return count

    def check(self, body: bytes) -> None:
        found = items(body)
        opcode = found.get(OPCODE, b"")
        if opcode == bytes([ERROR]):
            code = int.from_bytes(found.get(PAYLOAD, b""), "big")
            raise KeylessError(f"the signer refused to sign with error code {code}")
        if opcode != bytes([RESPONSE]):
            raise KeylessError(f"the signer answered with opcode {opcode.hex() or 'none'}")


def items(body: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at < len(body):
        if at + 3 > len(body):
            raise KeylessError("an item of the signer's answer is cut off")
        tag, length = struct.unpack_from(">BH", body, at)
        if at + 3 + length > len(body):
            raise KeylessError("an item of the signer's answer is longer than the answer")
        found[tag] = body[at + 3 : at + 3 + length]
        at += 3 + length
    return found


def ski(cert: Path) -> bytes:
    """Returns the identifier of a certificate's key: SHA-1 of the bit string with the key."""
    shown = subprocess.run(
        ["openssl", "x509", "-in", str(cert), "-noout", "-pubkey"], capture_output=True, check=True
    ).stdout
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "DER"],
        input=shown,
        capture_output=True,
        check=True,
    ).stdout
    return hashlib.sha1(bit_string(der)).digest()


def bit_string(info: bytes) -> bytes:
    """Returns the key within a SubjectPublicKeyInfo: a sequence of algorithm and bit string."""
    inside, _ = element(info, 0)
    _, after = element(info, inside)
    start, end = element(info, after)
    # The first byte is the number of unused bits.
    return info[start + 1 : end]


def element(der: bytes, at: int) -> tuple[int, int]:
    """Returns where the content of a DER element starts and ends."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(der[start : start + count], "big"), start + count
    return start, start + length


@dataclass(frozen=True)
class Files:
    """Certificates of one side of the connection, and of the other side's authority."""

    cert: Path
    key: Path
    ca: Path


def sign_for(seconds: float, port: int, files: Files, opcode: int, digest: bytes, key: bytes):
    """Keeps many requests open for a while.

    Returns the number of signatures, the time that they took, and the first one.
    """
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(files.cert, files.key)
    batch = b"".join(request(number, opcode, digest, key) for number in range(OUTSTANDING))
    size = len(batch) // OUTSTANDING
    answers, count, open_now = Answers(), 0, OUTSTANDING
    with (
        socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as tcp,
        context.wrap_socket(tcp, server_hostname="localhost") as tls,
    ):
        began = time.monotonic()
        tls.sendall(batch)
        while open_now:
            data = tls.recv(1 << 16)
            if not data:
                raise KeylessError(f"the signer closed the connection after {count} signatures")
            more = answers.add(data)
            if more > open_now:
                raise KeylessError(f"{more} answers to {open_now} requests")
            count, open_now = count + more, open_now - more
            if more and time.monotonic() - began < seconds:
                # IDs may repeat once their request is answered; nothing here tells them apart.
                tls.sendall(memoryview(batch)[: more * size])
                open_now += more
        return count, time.monotonic() - began, answers.first or b""


def verify(cert: Path, kind: str, message: bytes, signature: bytes, folder: Path) -> None:
    """Checks a signature of a message's SHA-256 with OpenSSL."""
    public, signed = folder / "public.pem", folder / "signature"
    shown = ["openssl", "x509", "-in", str(cert), "-noout", "-pubkey"]
    public.write_bytes(subprocess.run(shown, capture_output=True, check=True).stdout)
    signed.write_bytes(signature)
    command = ["openssl", "dgst", "-sha256", "-verify", str(public), "-signature", str(signed)]
    if kind == "rsa2048":
        command += ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest"]
    ended = subprocess.run(command, input=message, capture_output=True, check=False)
    if ended.returncode != 0:
        raise KeylessError(f"the first signature with {kind} is wrong")
