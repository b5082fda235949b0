"""A certificate authority for one test session, and valid and invalid certificates from it."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Identity:
    """Files of a server, and what its clients need to trust it."""

    ca: Path
    cert: Path
    """The leaf, then the authority that signed it."""
    key: Path
    spki_hash: str
    """Base64 of the SHA-256 of the leaf's public key, which Chromium is told to accept."""


def make_identity(
    folder: Path,
    *,
    more_names: int = 0,
    addresses: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
) -> Identity:
    """Makes an authority and a P-256 leaf for localhost, 127.0.0.1 and ::1, valid for ten days.

    Each additional name makes the leaf 26 bytes larger; `addresses` and `names` are added to the
    leaf.
    """
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = sign("Pronghorn tests", ca_key, "Pronghorn tests", ca_key, is_ca=True)
    key = ec.generate_private_key(ec.SECP256R1())
    more = {"more_names": more_names, "addresses": addresses, "names": names}
    leaf = sign("localhost", key, "Pronghorn tests", ca_key, is_ca=False, **more)

    folder.mkdir(parents=True, exist_ok=True)
    identity = Identity(
        folder / "ca.pem", folder / "cert.pem", folder / "key.pem", spki_hash(key.public_key())
    )
    identity.ca.write_bytes(pem(ca))
    identity.cert.write_bytes(pem(leaf) + pem(ca))
    identity.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return identity


def identity_for(folder: Path, hosts: list[str]) -> tuple[Path, Path]:
    """Makes a self-signed certificate for these hosts only, and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = sign(hosts[0], key, hosts[0], key, is_ca=False, only=tuple(hosts))
    (folder / "cert.pem").write_bytes(pem(certificate))
    (folder / "key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


def sign(
    subject: str,
    key,
    issuer: str,
    issuer_key,
    *,
    is_ca: bool,
    more_names: int = 0,
    addresses: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    days: tuple[float, float] = (-1 / 24, 10),
) -> x509.Certificate:
    """Signs a certificate.

    `only`: these names and no others. `days`: start and end of validity, from now.
    """
    now = datetime.datetime.now(datetime.UTC)
    all_names = [x509.DNSName(name) for name in only] or [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
        *(x509.DNSName(f"host-{number:06}.example.test") for number in range(more_names)),
        *(x509.DNSName(name) for name in names if name not in ("*", "localhost", "127.0.0.1")),
    ]
    builder = (
        x509.CertificateBuilder()
        .subject_name(common_name(subject))
        .issuer_name(common_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    if not is_ca:
        builder = builder.add_extension(x509.SubjectAlternativeName(all_names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def as_version_1(certificate: x509.Certificate, issuer_key) -> x509.Certificate:
    """Returns the certificate without version and extensions, as OpenSSL 3.0 makes it from a
    request without extensions.
    """
    version, extensions = 0xA0, 0xA3
    fields = der_parts(der_parts(certificate.tbs_certificate_bytes)[0][2])
    parts = [field for field in fields if field[0] not in (version, extensions)]
    tbs = der(0x30, b"".join(whole for _, whole, _ in parts))
    algorithm = parts[1][1]
    signature = der(0x03, b"\0" + issuer_key.sign(tbs, ec.ECDSA(hashes.SHA256())))
    return x509.load_der_x509_certificate(der(0x30, tbs + algorithm + signature))


def der(tag: int, content: bytes) -> bytes:
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8)
    if len(content) >= 0x80:
        length = bytes([0x80 | len(length)]) + length
    return bytes([tag]) + length + content


def der_parts(encoded: bytes) -> list[tuple[int, bytes, bytes]]:
    """Parses a sequence of DER values: each one's tag, whole encoding and content."""
    parts, at = [], 0
    while at < len(encoded):
        start, size, at = at, encoded[at + 1], at + 2
        if size & 0x80:
            size, at = int.from_bytes(encoded[at : at + (size & 0x7F)]), at + (size & 0x7F)
        parts.append((encoded[start], encoded[start : at + size], encoded[at : at + size]))
        at += size
    return parts


def common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def spki_hash(public_key) -> str:
    """Returns Base64 of the SHA-256 of the SubjectPublicKeyInfo, for Chromium."""
    spki = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(spki).digest()).decode()
