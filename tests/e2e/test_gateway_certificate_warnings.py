"""Warnings for certificates that clients reject: by `check`, at start, at a reload, and when files
change.
"""

from __future__ import annotations

import datetime
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from harness.certificates import pem, sign
from harness.server import pronghorn

MALFORMED = 65


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@dataclass(frozen=True)
class Authorities:
    """A root, and an intermediate that it signed."""

    root: ec.EllipticCurvePrivateKey
    middle: ec.EllipticCurvePrivateKey
    root_certificate: x509.Certificate
    middle_certificate: x509.Certificate


@pytest.fixture(scope="module")
def authorities() -> Authorities:
    root, middle = new_key(), new_key()
    return Authorities(
        root,
        middle,
        sign("The root", root, "The root", root, is_ca=True),
        sign("The middle", middle, "The root", root, is_ca=True),
    )


@pytest.fixture
def write(gateway, authorities):
    """Writes a site for localhost and its certificate, in the files `cert.pem` with `chain`, and
    `key.pem`.
    """

    def write(*, chain="lm", hosts=("localhost",), own_key=True, **leaf) -> Path:
        key = new_key()
        kinds = {
            "l": lambda: sign("leaf", key, "The middle", authorities.middle, is_ca=False, **leaf),
            "m": lambda: authorities.middle_certificate,
            "r": lambda: authorities.root_certificate,
            "s": lambda: sign("own", key, "own", key, is_ca=False),
        }
        (gateway.folder / "cert.pem").write_bytes(b"".join(pem(kinds[kind]()) for kind in chain))
        written = key if own_key else new_key()
        (gateway.folder / "key.pem").write_bytes(
            written.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        names = ", ".join(f'"{host}"' for host in hosts)
        tls = 'tls = { cert = "cert.pem", key = "key.pem" }'
        return gateway.write(
            f'[[sites]]\nhosts = [{names}]\n{tls}\n[[sites.routes]]\nrespond = "x"\n'
        )

    return write


def check(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([pronghorn(), "check", file], capture_output=True, text=True, timeout=60)


FAULTS = {
    "expired": ({"days": (-20, -10)}, ["the certificate expired on ", "renew the certificate"]),
    "not yet valid": ({"days": (10, 20)}, ["the certificate is not valid before ", "clock"]),
    "another name": (
        {"hosts": ("localhost", "a.test")},
        ["the certificate does not cover a.test; it covers localhost, "],
    ),
    "another address": (
        {"hosts": ("192.0.2.1",)},
        ["the certificate does not cover 192.0.2.1; it covers "],
    ),
    "no wildcard": (
        {"hosts": ("*.a.test",), "names": ("x.a.test",)},
        ["the certificate does not cover *.a.test; it covers "],
    ),
    "wildcard for one label": (
        {"hosts": ("x.y.a.test",), "names": ("*.a.test",)},
        ["the certificate does not cover x.y.a.test; it covers "],
    ),
    "no intermediate": (
        {"chain": "l"},
        ["incomplete chain: the issuer, CN=The middle", "fullchain"],
    ),
    "another issuer": (
        {"chain": "lr"},
        ["certificate 2 of the chain is not the expected issuer", "CN=The middle"],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_check_warns_of_certificates_that_clients_reject(write, fault):
    how, says = FAULTS[fault]
    file = write(**how)
    done = check(file)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"warning: {file}:7:1: ")
    assert "cert.pem: " in line
    for words in says:
        assert words in line


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"chain": "lmr"},
        {"chain": "s"},
        {"hosts": ("LOCALHOST", "127.0.0.1", "*")},
        {"hosts": ("*.a.test", "x.a.test", "A.test"), "names": ("*.a.test", "a.TEST")},
    ],
    ids=str,
)
def test_check_accepts_valid_certificates_without_a_warning(write, how):
    done = check(write(**how))
    assert (done.returncode, done.stderr) == (0, "")


def test_key_of_another_certificate_is_an_error(write):
    done = check(write(own_key=False))
    assert done.returncode == MALFORMED
    assert "the key does not belong to the certificate" in done.stderr


def test_missing_certificate_and_key_are_reported_together(write, gateway):
    file = write()
    for name in ("cert.pem", "key.pem"):
        (gateway.folder / name).unlink()
    done = check(file)
    assert done.stderr.count("check the path") == 2, done.stderr
    assert "cert.pem: " in done.stderr
    assert "key.pem: " in done.stderr


def test_too_small_key_is_an_error_that_lists_accepted_ones(write, gateway):
    file = write()
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    (gateway.folder / "key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    done = check(file)
    assert done.returncode == MALFORMED
    assert "key.pem: unsupported key type or size" in done.stderr
    assert "RSA of 2048" in done.stderr
    assert "belongs to the certificate" not in done.stderr


def test_start_reload_and_changed_files_log_the_warning(start, gateway, write):
    write(days=(-20, -10))
    server = start(gateway.command())
    server.wait_for_lines("warning: .*cert.pem: the certificate expired on ")
    write(hosts=("localhost", "a.test"))
    done = subprocess.run(
        [pronghorn(), "reload", "-c", gateway.file], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "the certificate does not cover a.test; it covers " in done.stdout
    server.wait_for_lines("warning: .*the certificate does not cover a.test; it covers ")
    # A matching pair for the wrong names replaces the right one, without a reload.
    text = gateway.file.read_text()
    write(hosts=("localhost", "a.test"), chain="l")
    assert gateway.file.read_text() == text
    server.wait_for_lines("warning: .*incomplete chain: the issuer")


def test_serve_warns_of_its_certificate(start, authorities, tmp_path):
    key = new_key()
    leaf = sign("leaf", key, "The middle", authorities.middle, is_ca=False, days=(-20, -10))
    (tmp_path / "cert.pem").write_bytes(pem(leaf))
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    command = [pronghorn(), "serve", tmp_path, "--listen", "127.0.0.1:0"]
    server = start([*command, "--cert", tmp_path / "cert.pem", "--key", tmp_path / "key.pem"])
    expired = leaf.not_valid_after_utc.astimezone(datetime.UTC).strftime("%d %b %Y")
    server.wait_for_lines(f"warning: .*cert.pem: the certificate expired on .*{expired}")
    server.wait_for_lines("warning: .*cert.pem: incomplete chain: the issuer")
