"""TLS of `pronghorn run`: client certificates, versions, ciphers and groups."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import socket
import ssl
import subprocess

import pytest
from aioquic.tls import CipherSuite
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from harness.admin import metrics
from harness.certificates import Identity, as_version_1, make_identity, pem, sign
from harness.clients import FETCHERS, curl
from harness.clients.aioquic_h3 import h3_connection
from harness.clients.chromium import NAME, common_flags, protocol_flags, visit
from harness.gateway import seen
from harness.waiting import eventually

FORGED = [
    ("client-cert", ":Zm9v:"),
    ("x-client-cert-subject", "CN=root"),
    ("x-client-cert-fingerprint", "00"),
]


@pytest.fixture
def client(tmp_path):
    return make_identity(tmp_path / "client")


def write(gateway, client, up, mode="required", more=""):
    tls = gateway.tls.replace(" }", f', client = {{ ca = "{client.ca}", mode = "{mode}" }} }}')
    site = f'[[sites]]\nhosts = ["localhost", "127.0.0.1"]\n{tls}\n[[sites.routes]]\nproxy = "{up.address}"\n'
    open_site = f'[[sites]]\nhosts = ["open.example"]\n{gateway.tls}\n[[sites.routes]]\nproxy = "{up.address}"\n'
    log = '[log]\naccess = "access.log"\nformat = "json"\n'
    gateway.write(site + open_site + log + more, server='state_dir = "state"')


def shown(identity) -> tuple[str, str]:
    """Returns the certificate as in `client-cert`, and its fingerprint."""
    der = x509.load_pem_x509_certificate(identity.cert.read_bytes()).public_bytes(Encoding.DER)
    return f":{base64.b64encode(der).decode()}:", hashlib.sha256(der).hexdigest()


def ask(server, ca, protocol, identity=None, headers=()):
    with curl.session(ca) as session:
        if identity is not None:
            session.cert = (str(identity.cert), str(identity.key))
        return curl.ask(session, protocol, server.origin + "/", headers=headers)


def test_client_with_a_certificate_is_served_and_identified_to_the_upstream(
    start, gateway, client, up, identity, protocol_fetcher
):
    write(gateway, client, up)
    server = start(gateway.command())
    protocol = protocol_fetcher.protocol
    assert ask(server, identity.ca, protocol).status == 403
    assert (
        ask(server, identity.ca, protocol, make_identity(gateway.folder / "stranger")).status == 403
    )
    assert up.requests == []
    response = ask(server, identity.ca, protocol, client, FORGED)
    assert response.status == 200
    fields = seen(response)["headers"]
    certificate, fingerprint = shown(client)
    assert (fields["client-cert"], fields["x-client-cert-fingerprint"]) == (
        certificate,
        fingerprint,
    )
    assert fields["x-client-cert-subject"] == "CN=localhost"
    server.terminate()
    assert server.wait() == 0, server.lines
    entries = [
        json.loads(line) for line in (gateway.folder / "access.log").read_text().splitlines()
    ]
    assert [entry["status"] for entry in entries] == [403, 403, 200]
    assert (entries[2]["client_subject"], entries[2]["client_fingerprint"]) == (
        "CN=localhost",
        fingerprint,
    )
    assert "client_subject" not in entries[1]


def test_optional_certificate_may_be_omitted_but_not_forged(
    start, gateway, client, up, identity, protocol_fetcher
):
    write(gateway, client, up, "optional")
    server = start(gateway.command())
    protocol = protocol_fetcher.protocol
    fields = seen(ask(server, identity.ca, protocol, None, FORGED))["headers"]
    assert not [name for name in fields if "client-cert" in name]
    assert "client-cert" in seen(ask(server, identity.ca, protocol, client))["headers"]
    assert (
        ask(server, identity.ca, protocol, make_identity(gateway.folder / "stranger")).status == 403
    )


def h1(server, context, name: str, host: str, session=None) -> tuple[bytes, ssl.SSLSession, bool]:
    """Sends one request; returns the response, a session to resume, and whether one was resumed."""
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as tcp,
        context.wrap_socket(tcp, server_hostname=name, session=session) as tls,
    ):
        tls.sendall(f"GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: tls.recv(65536), b""))
        return answer, tls.session, tls.session_reused


def context_of(identity, client=None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=identity.ca)
    context.check_hostname = False
    if client is not None:
        context.load_cert_chain(client.cert, client.key)
    return context


def issued(folder, key, certificate, ca) -> Identity:
    """Returns a client's identity. `ca`: the trust anchor of the gateway."""
    folder.mkdir()
    identity = Identity(folder / "ca.pem", folder / "cert.pem", folder / "key.pem", "")
    identity.ca.write_bytes(pem(ca))
    identity.cert.write_bytes(pem(certificate))
    identity.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return identity


def test_trusted_client_certificate_does_not_act_as_an_authority(
    start, gateway, tmp_path, up, identity, protocol_fetcher
):
    alice_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    alice = sign("alice", alice_key, "alice", alice_key, is_ca=False)
    trusted = issued(tmp_path / "alice", alice_key, alice, alice)
    forged = issued(
        tmp_path / "root", key, sign("root", key, "alice", alice_key, is_ca=False), alice
    )
    write(gateway, trusted, up)
    server = start(gateway.command())
    protocol = protocol_fetcher.protocol
    assert ask(server, identity.ca, protocol, forged).status == 403
    assert ask(server, identity.ca, protocol, trusted).status == 200


def test_client_certificate_of_an_expired_authority_is_rejected(
    start, gateway, tmp_path, up, identity, protocol_fetcher
):
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = sign("authority", ca_key, "authority", ca_key, is_ca=True, days=(-10, -1))
    client = issued(
        tmp_path / "late", key, sign("late", key, "authority", ca_key, is_ca=False), authority
    )
    write(gateway, client, up)
    server = start(gateway.command())
    assert ask(server, identity.ca, protocol_fetcher.protocol, client).status == 403


@pytest.fixture
def version_1(tmp_path):
    """Returns a client's certificate without extensions, from a trusted authority."""
    folder = tmp_path / "version-1"
    folder.mkdir()
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    identity = Identity(folder / "ca.pem", folder / "cert.pem", folder / "key.pem", "")
    identity.ca.write_bytes(pem(sign("authority", ca_key, "authority", ca_key, is_ca=True)))
    leaf = as_version_1(sign("client", key, "authority", ca_key, is_ca=False), ca_key)
    assert leaf.version == x509.Version.v1
    identity.cert.write_bytes(pem(leaf))
    identity.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return identity


@pytest.mark.parametrize("mode", ["required", "optional"])
def test_certificate_of_version_1_is_rejected(
    start, gateway, version_1, up, identity, protocol_fetcher, mode
):
    write(gateway, version_1, up, mode)
    server = start(gateway.command())
    answer = ask(server, identity.ca, protocol_fetcher.protocol, version_1)
    assert (answer.status, answer.body) == (403, b"the client certificate is not trusted\n")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_certificate_of_version_1_is_rejected_in_either_version_of_tls(
    start, gateway, version_1, up, identity, version
):
    write(gateway, version_1, up)
    server = start(gateway.command())
    context = context_of(identity, version_1)
    context.maximum_version = version
    answer, _, _ = h1(server, context, "localhost", "localhost")
    assert answer.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("is_own", [True, False])
def test_certificate_of_version_1_needs_its_key(start, gateway, version_1, up, identity, is_own):
    write(gateway, version_1, up)
    server = start(gateway.command())
    key = serialization.load_pem_private_key(version_1.key.read_bytes(), None)
    shown = {
        "certificate": x509.load_pem_x509_certificate(version_1.cert.read_bytes()),
        "private_key": key if is_own else ec.generate_private_key(ec.SECP256R1()),
    }

    async def status() -> int:
        async with h3_connection(server.origin, identity.ca, **shown) as client:
            return (await client.fetch("/")).status

    if is_own:
        assert asyncio.run(status()) == 403
    else:
        with pytest.raises(ConnectionError):
            asyncio.run(status())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_resumed_session_keeps_its_client_certificate(
    start, gateway, client, up, identity, version
):
    write(gateway, client, up)
    server = start(gateway.command())
    context = context_of(identity, client)
    context.maximum_version = version
    answer, session, _ = h1(server, context, "localhost", "localhost")
    assert answer.startswith(b"HTTP/1.1 200 ")
    answer, _, resumed = h1(server, context, "localhost", "localhost", session)
    assert resumed
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert shown(client)[0].encode() in answer


def test_connection_for_another_site_does_not_bypass_client_certificates(
    start, gateway, client, up, identity
):
    """The connection is for a site without client certificates, so the client was not asked for its
    own.
    """
    write(gateway, client, up)
    server = start(gateway.command())
    context = context_of(identity, client)
    assert h1(server, context, "open.example", "open.example")[0].startswith(b"HTTP/1.1 200 ")
    assert h1(server, context, "open.example", "localhost")[0].startswith(b"HTTP/1.1 421 ")
    # Forged certificate fields do not reach an upstream through that site either.
    with curl.session(identity.ca) as session:
        session.verify = False
        answer = curl.ask(
            session, "HTTP/1.1", server.origin + "/", headers=[("host", "open.example"), *FORGED]
        )
    assert not [name for name in seen(answer)["headers"] if "client-cert" in name]


def test_client_authority_is_replaced_by_reload(
    start, gateway, client, up, identity, protocol_fetcher
):
    write(gateway, client, up)
    server = start(gateway.command())
    other = make_identity(gateway.folder / "other")
    assert ask(server, identity.ca, protocol_fetcher.protocol, client).status == 200
    write(gateway, other, up)
    server.popen.send_signal(1)
    server.wait_for_lines("serving 2 sites", 2)
    assert ask(server, identity.ca, protocol_fetcher.protocol, client).status == 403
    assert ask(server, identity.ca, protocol_fetcher.protocol, other).status == 200


def test_tls_version_below_the_minimum_is_rejected(start, gateway, identity):
    sites = f'[[sites]]\nhosts = ["localhost"]\n{gateway.tls}\n[[sites.routes]]\nrespond = "x"\n'
    gateway.write(sites, server='min_tls = "1.3"')
    server = start(gateway.command())
    context = context_of(identity)
    assert h1(server, context, "localhost", "localhost")[0].startswith(b"HTTP/1.1 200 ")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="protocol version"):
        h1(server, context, "localhost", "localhost")


def test_client_cipher_order_and_post_quantum_groups_are_used(start, gateway, identity):
    sites = f'[[sites]]\nhosts = ["localhost", "127.0.0.1"]\n{gateway.tls}\n[[sites.routes]]\nrespond = "x"\n'
    gateway.write(sites, server='state_dir = "state"')
    server = start(gateway.command())

    def count(series: str) -> float:
        return metrics(gateway.folder / "state/admin.sock")[series]

    async def quic(suites) -> None:
        async with h3_connection(server.origin, identity.ca, cipher_suites=suites) as client:
            assert (await client.fetch("/")).status == 200

    chacha = 'pronghorn_tls_ciphers_total{cipher="ChaCha20-Poly1305"}'
    asyncio.run(quic([CipherSuite.AES_128_GCM_SHA256, CipherSuite.CHACHA20_POLY1305_SHA256]))
    assert count(chacha) == 0
    asyncio.run(quic([CipherSuite.CHACHA20_POLY1305_SHA256, CipherSuite.AES_128_GCM_SHA256]))
    eventually("it is counted", lambda: count(chacha) == 1)
    for name in ("go-h2", "quic-go-h3"):
        fetcher = next(fetcher for fetcher in FETCHERS if fetcher.name == name).trusting(
            identity.ca
        )
        assert fetcher.fetch(server.origin + "/").status == 200
    groups = 'pronghorn_tls_groups_total{group="X25519MLKEM768"}'
    eventually("both are counted", lambda: count(groups) == 2)


@pytest.mark.parametrize("protocol", ["h2", "h3"])
def test_chromium_negotiates_post_quantum_keys(start, gateway, identity, protocol):
    sites = f'[[sites]]\nhosts = ["{NAME}"]\n{gateway.tls}\n[[sites.routes]]\nrespond = "x"\n'
    gateway.write(sites, server='state_dir = "state"')
    server = start(gateway.command())
    flags = common_flags(identity.spki_hash) + protocol_flags(protocol, NAME, server.port)
    (visited,) = visit(f"https://{NAME}:{server.port}/", flags)["visits"]
    assert {request["protocol"] for request in visited["requests"]} == {protocol}
    counted = metrics(gateway.folder / "state/admin.sock")
    groups = {
        series: count
        for series, count in counted.items()
        if "tls_groups_total" in series and count > 0
    }
    assert groups.keys() == {'pronghorn_tls_groups_total{group="X25519MLKEM768"}'}


@pytest.mark.parametrize(
    ("version", "ciphers"),
    [
        ("-tls1_3", ("-ciphersuites", ["TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"])),
        (
            "-tls1_2",
            ("-cipher", ["ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES128-GCM-SHA256"]),
        ),
    ],
)
def test_client_cipher_order_is_used_over_tcp(start, gateway, version, ciphers):
    sites = f'[[sites]]\nhosts = ["localhost"]\n{gateway.tls}\n[[sites.routes]]\nrespond = "x"\n'
    gateway.write(sites)
    server = start(gateway.command())
    option, names = ciphers
    for order in (names, names[::-1]):
        command = [
            "openssl",
            "s_client",
            "-connect",
            f"127.0.0.1:{server.port}",
            version,
            option,
            ":".join(order),
        ]
        done = subprocess.run(command, input=b"", capture_output=True, timeout=60)
        assert f"Cipher is {order[0]}" in done.stdout.decode()


def test_changed_certificate_files_are_loaded_without_a_reload(start, gateway, identity, tmp_path):
    own, other = make_identity(tmp_path / "own"), make_identity(tmp_path / "next")
    tls = f'tls = {{ cert = "{own.cert}", key = "{own.key}" }}'
    gateway.write(f'[[sites]]\nhosts = ["localhost"]\n{tls}\n[[sites.routes]]\nrespond = "x"\n')
    server = start(gateway.command())

    def is_trusted_by(ca) -> bool:
        try:
            return h1(server, ssl.create_default_context(cafile=ca), "localhost", "localhost")[
                0
            ].startswith(b"HTTP/1.1 200 ")
        except ssl.SSLCertVerificationError:
            return False

    assert is_trusted_by(own.ca)
    # A chain without its key changes nothing, and is logged.
    chain = own.cert.read_bytes()
    own.cert.write_bytes(other.cert.read_bytes())
    server.wait_for_lines("the previous ones stay in use")
    assert is_trusted_by(own.ca)
    assert chain != own.cert.read_bytes()
    own.key.write_bytes(other.key.read_bytes())
    server.wait_for_lines("certificates reloaded")
    assert is_trusted_by(other.ca)
    assert not is_trusted_by(own.ca)
