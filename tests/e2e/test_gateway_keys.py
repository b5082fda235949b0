"""Private keys of `pronghorn run` on signers and in a security module: independent clients connect
over each protocol, and operators change the configuration.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess

import pytest

from harness.clients import FETCHERS
from harness.keys import FROM_SIGNER, Client, der, shown
from harness.server import pronghorn
from harness.signer import Token
from harness.waiting import DEADLINE_SECONDS, eventually

# Each protocol and kind of key.


@pytest.mark.parametrize("kind", ["p256", "rsa", "p384"])
def test_each_client_gets_the_certificate_of_a_key_on_a_signer(edge, signer, run_edge, kind):
    client = run_edge(FROM_SIGNER, cert=kind, signers={"vault": [signer.address]})
    clients = ("curl-h1", "curl-h2", "go-h2", "quic-go-h3")
    for fetcher in [fetcher for fetcher in FETCHERS if fetcher.name in clients]:
        response = fetcher.trusting(edge.ca).fetch(f"https://localhost:{client.port}/")
        assert response.text() == "elsewhere", fetcher.name

    async def with_aioquic() -> None:
        async with client.h3() as connection:
            connection.authority = f"localhost:{client.port}"
            assert (await connection.fetch("/")).text() == "elsewhere"
            peer = connection._quic.tls._peer_certificate
            assert der(peer) == der(edge.leaves[kind])

    asyncio.run(with_aioquic())
    kinds = {"p256": "ECDSA", "p384": "ECDSA", "rsa": "RSA-PSS"}
    for version in ("-tls1_2", "-tls1_3"):
        output = client.openssl(version)
        assert "Verify return code: 0 (ok)" in output, output
        assert f"Peer signature type: {kinds[kind]}" in output, output
        assert shown(output) == der(edge.leaves[kind])
    assert edge.key("signatures_total", "signer:vault", kind) == len(clients) + 3
    assert edge.key("failures_total", "signer:vault", kind) == 0
    assert edge.key("source_skipped", "signer:vault", kind) == 0
    # The other site signs by itself.
    assert shown(client.openssl(host="here.test")) == der(edge.leaves["here"])
    assert edge.key("signatures_total", "signer:vault", kind) == len(clients) + 3


def test_rsa_key_on_a_signer_signs_in_the_way_of_tls_1_2(edge, signer, run_edge):
    client = run_edge(FROM_SIGNER, cert="rsa", signers={"vault": [signer.address]})
    output = client.openssl("-tls1_2", "-sigalgs", "RSA+SHA384")
    assert "Peer signature type: RSA\n" in output, output
    assert "Peer signing digest: SHA384" in output
    assert "Verify return code: 0 (ok)" in output


def test_client_without_a_server_name_gets_the_first_site_signed_by_a_signer(edge, signer, start):
    edge.write(FROM_SIGNER, signers={"vault": [signer.address]})
    text = edge.gateway.file.read_text()
    # The first site, which is for clients without a name, gets the slow key.
    own = 'tls = { cert = "here.pem", key = "here-key.pem" }'
    slow = "tls = { cert = \"p256.pem\", keys = ['signer:vault'] }"
    text = text.replace(slow, "").replace(own, slow)
    text = text.replace('hosts = ["localhost"]\n', 'hosts = ["localhost"]\n' + own)
    edge.gateway.file.write_text(text)
    client = Client(edge, start(edge.gateway.command()))
    output = client.openssl("-tls1_3", host="")
    assert shown(output) == der(edge.leaves["p256"])
    assert "Verify return code: 0 (ok)" in output, output
    assert client.fetch("127.0.0.1") == b"here"
    assert client.fetch("localhost") == b"elsewhere"
    assert edge.key("signatures_total", "signer:vault") == 2


def test_resumed_session_needs_no_signature(edge, signer, run_edge):
    client = run_edge(FROM_SIGNER, signers={"vault": [signer.address]})
    session = edge.folder / "session"
    for version in ("-tls1_2", "-tls1_3"):
        before = edge.key("signatures_total", "signer:vault")
        context = ["openssl", "s_client", "-connect", f"127.0.0.1:{client.port}"]
        context += ["-servername", "localhost", version, "-ign_eof"]
        request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        for flag, expected in (("-sess_out", "New, "), ("-sess_in", "Reused, ")):
            done = subprocess.run(
                [*context, flag, str(session)],
                input=request,
                capture_output=True,
                timeout=DEADLINE_SECONDS,
            )
            assert expected in done.stdout.decode(errors="replace"), version
        assert edge.key("signatures_total", "signer:vault") == before + 1


def test_gateway_that_starts_before_its_signer_says_so_and_connects_later(signer, run_edge):
    signer.process.kill()
    client = run_edge(FROM_SIGNER, signers={"vault": [signer.address]})
    client.server.wait_for_lines(f"^warning: signer vault: {signer.address}: .*cannot connect")
    signer.start()
    client.server.wait_for_lines(f"^signer vault: connected to {signer.address}$")
    eventually("the signer signs", client.is_served)


# Ways to send a ClientHello.


def test_hello_retry_request_waits_for_a_slow_key(edge, faulty_signer, run_edge):
    faulty_signer.delay = 0.2
    client = run_edge(FROM_SIGNER, signers={"vault": [faulty_signer.address]})
    # The server has no P-521, so the first key share is of no use.
    output = client.openssl("-tls1_3", "-groups", "P-521:X25519", "-msg")
    assert output.count("ClientHello") == 2, output
    assert "Server Temp Key: X25519" in output
    assert "Verify return code: 0 (ok)" in output
    assert faulty_signer.requests == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("parts", ["segments", "records", "bytes"])
def test_client_hello_in_parts_waits_for_a_slow_key(edge, faulty_signer, run_edge, version, parts):
    faulty_signer.delay = 0.05
    client = run_edge(FROM_SIGNER, signers={"vault": [faulty_signer.address]})
    context = ssl.create_default_context(cafile=edge.ca)
    context.minimum_version = context.maximum_version = version
    received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(received, to_send, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    with socket.create_connection(("127.0.0.1", client.port), timeout=DEADLINE_SECONDS) as tcp:
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in split(to_send.read(), parts):
            tcp.sendall(piece)
            wait_until_received(tcp)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                tcp.sendall(to_send.read())
                data = tcp.recv(65536)
                assert data, "the server closed the connection"
                received.write(data)
        tcp.sendall(to_send.read())
    assert tls.version() == version.name.replace("v1_", "v1.")
    assert tls.getpeercert(binary_form=True) == der(edge.leaves["p256"])
    assert faulty_signer.requests == 1


def split(record: bytes, parts: str) -> list[bytes]:
    """Splits a record with a ClientHello."""
    middle = len(record) // 2
    match parts:
        case "segments":
            return [record[:middle], record[middle:]]
        case "bytes":
            return [record[at : at + 1] for at in range(8)] + [record[8:]]
        case _:
            head, hello = record[:3], record[5:]
            pieces = [hello[:2], hello[2:60], hello[60:]]
            return [head + len(piece).to_bytes(2, "big") + piece for piece in pieces]


def wait_until_received(tcp: socket.socket) -> None:
    """Waits until the peer's kernel has acknowledged everything, so that segments stay apart."""
    unsent = 0x5411  # SIOCOUTQ of ioctl(2)

    def is_empty() -> bool:
        import fcntl

        size = bytearray(4)
        fcntl.ioctl(tcp, unsent, size)
        return int.from_bytes(size, "little") == 0

    eventually("the server's kernel has the bytes", is_empty)


# Security modules.


@pytest.fixture
def token(edge) -> Token:
    (edge.folder / "token").mkdir()
    token = Token(edge.folder / "token")
    edge.issue("module", token)
    return token


def test_key_in_a_security_module_signs_over_each_transport(edge, run_edge, token):
    client = run_edge([token.uri(pin="token/pin")], cert="module", env=token.env)
    assert asyncio.run(client.fetch_h3()) == client.fetch() == b"elsewhere"
    for version in ("-tls1_2", "-tls1_3"):
        output = client.openssl(version)
        assert shown(output) == der(edge.leaves["module"])
        assert "Verify return code: 0 (ok)" in output
    assert edge.key("signatures_total", "object=site", "module") == 4
    assert "1234" not in "".join([*client.server.lines, *edge.metrics()])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pin": "token/wrong"}, "the token refused the PIN (PinIncorrect)"),
        ({"pin": "token/none"}, "token/none: No such file"),
        ({"token": "U"}, "no such token; the module has"),
        ({"module": "/none.so"}, "cannot load the PKCS#11 module /none.so"),
        ({}, "the key's signature does not verify with the certificate's public key"),
    ],
)
def test_unusable_security_module_is_one_error_at_the_start(edge, token, change, message):
    (edge.folder / "token" / "wrong").write_text("9999\n")
    # Without a change, the certificate is of another key.
    edge.write([token.uri(**{"pin": "token/pin", **change})], cert="module" if change else "p256")
    for command in ([pronghorn(), "check", edge.gateway.file], edge.gateway.command()):
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            env={**token.env, "PATH": "/usr/bin"},
            timeout=DEADLINE_SECONDS,
        )
        assert done.returncode == 65, done.stderr
        problem, conclusion = done.stderr.splitlines()
        assert problem.startswith(f"{edge.gateway.file}:17:1: pkcs11:"), problem
        assert message in problem
        assert conclusion == f"error: {edge.gateway.file} has an error"
        assert "1234" not in done.stderr
        assert "9999" not in done.stderr
