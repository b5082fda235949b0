"""A certificate authority for one test session, and certificates from it, good and bad."""

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
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Identity:
    """Files for a server and what its clients need to trust it."""

    ca: Path
    cert: Path
    """The leaf, then the authority that signed it."""
    key: Path
    spki_hash: str
    """Base64 of the SHA-256 of the leaf's public key: what Chromium is told to accept."""


def make_identity(
    folder: Path, *, more_names: int = 0, addresses: tuple[str, ...] = (), names: tuple[str, ...] = ()
) -> Identity:
    """An authority and a P-256 leaf for localhost, 127.0.0.1 and ::1, valid for ten days.

    Each more name makes the leaf 26 bytes larger; `addresses` and `names` are more that it is for.
    """
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = sign("Pronghorn tests", ca_key, "Pronghorn tests", ca_key, is_ca=True)
    key = ec.generate_private_key(ec.SECP256R1())
    more = {"more_names": more_names, "addresses": addresses, "names": names}
    leaf = sign("localhost", key, "Pronghorn tests", ca_key, is_ca=False, **more)

    folder.mkdir(parents=True, exist_ok=True)
    identity = Identity(folder / "ca.pem", folder / "cert.pem", folder / "key.pem", spki_hash(key.public_key()))
    identity.ca.write_bytes(pem(ca))
    identity.cert.write_bytes(pem(leaf) + pem(ca))
    identity.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return identity


def identity_for(folder: Path, hosts: list[str]) -> tuple[Path, Path]:
    """A self-signed certificate for these hosts alone, and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = sign(hosts[0], key, hosts[0], key, is_ca=False, only=tuple(hosts))
    (folder / "cert.pem").write_bytes(pem(certificate))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
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
    """`only`: these names and no others. `days`: from and until when it is valid, from now."""
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


def common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def spki_hash(public_key) -> str:
    """Base64 of the SHA-256 of the SubjectPublicKeyInfo, as Chromium wants it."""
    spki = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(spki).digest()).decode()
