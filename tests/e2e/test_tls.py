"""TLS: key exchange, ciphers, large certificates, sessions without early data, and the key log."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess

import pytest

from harness.certificates import make_identity
from harness.first_flight import capture, received_until_silence
from harness.server import Server, pronghorn, quic_go_server, serve_command


@pytest.fixture(params=["1.1", "2", "3"])
def version(request) -> str:
    return request.param


def handshake(get: list, url: str, *flags: str) -> list[str]:
    """Returns the output of `pronghorn get -v` about the TLS of each of its connections."""
    command = [str(part) for part in [*get, *flags, "-v", url]]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    return re.findall(r"^\* TLS: (.+)$", done.stderr.decode(), re.MULTILINE)


@pytest.fixture
def get(ca) -> list:
    return [pronghorn(), "get", "--cacert", ca]


def test_key_exchange_is_post_quantum_with_pronghorn_and_go(
    start, start_serve, identity, get, version
):
    go = start([quic_go_server(), "-cert", identity.cert, "-key", identity.key])
    for url in [f"{start_serve().origin}/small.txt", f"{go.origin}/request"]:
        (said,) = handshake(get, url, "--http", version)
        assert "X25519MLKEM768" in said


def s_client(server: Server, *flags) -> str:
    command = [
        "openssl",
        "s_client",
        "-connect",
        f"127.0.0.1:{server.port}",
        "-ign_eof",
        *map(str, flags),
    ]
    request = b"GET /small.txt HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    said = subprocess.run(command, input=request, capture_output=True, timeout=60).stdout.decode(
        errors="replace"
    )
    assert "HTTP/1.1 200" in said
    return said


def test_client_with_chacha20_only_is_served(server):
    said = s_client(server, "-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256")
    assert "New, TLSv1.3, Cipher is TLS_CHACHA20_POLY1305_SHA256" in said


def test_client_without_post_quantum_groups_is_served(server):
    assert "X25519, 253 bits" in s_client(server, "-tls1_3", "-groups", "X25519")


def test_session_of_tls_1_2_is_resumed(server, tmp_path):
    session = tmp_path / "session"
    assert "New, TLSv1.2" in s_client(server, "-tls1_2", "-no_ticket", "-sess_out", session)
    for _ in range(2):
        assert "Reused, TLSv1.2" in s_client(server, "-tls1_2", "-no_ticket", "-sess_in", session)


def test_session_of_tls_1_3_is_resumed_once(server, ca):
    def ask(session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession]:
        plain = socket.create_connection((server.host, server.port), 30)
        with context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as connection:
            connection.sendall(
                b"GET /small.txt HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
            )
            while connection.recv(65535):
                pass
            return connection.session_reused, connection.session

    context = ssl.create_default_context(cafile=str(ca))
    reused, session = ask(None)
    assert not reused
    assert ask(session)[0]
    assert not ask(session)[0]


def test_large_certificate_is_not_amplified(start, site, tmp_path):
    """A handshake of 20 KiB completes; an unvalidated address gets at most three times the bytes
    received from it.
    """
    chain = make_identity(tmp_path / "large", more_names=700)
    assert len(chain.cert.read_bytes()) > 20_000
    server = start(serve_command(site.root, chain, "--stats", "--grace", "0.5"))
    get = [pronghorn(), "get", "--cacert", chain.ca]
    done = subprocess.run(
        [*get, "--http", "3", f"{server.origin}/small.txt"],
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == site.read("small.txt")
    flight = capture(server.port, get, "3", "/small.txt")
    # A server without the session sends its certificate.
    server.kill()
    again = start(
        serve_command(site.root, chain, "--grace", "0.5", listen=[f"127.0.0.1:{server.port}"])
    )
    # From another address: its token proves the address that it was captured at.
    with flight.send(again.port, source="127.0.0.2") as sender:
        received = received_until_silence(sender)
    assert flight.size < received <= 3 * flight.size


def secrets(path) -> dict[tuple[str, str], str]:
    return {
        (label, random): secret
        for label, random, secret in (line.split() for line in path.read_text().splitlines())
    }


def test_key_log_is_written_if_configured_and_logged(start, identity, site, ca, version, tmp_path):
    log = {side: tmp_path / f"{side}.keys" for side in ("server", "client")}
    server = start(serve_command(site.root, identity), env={"SSLKEYLOGFILE": str(log["server"])})
    command = [
        str(part)
        for part in [
            pronghorn(),
            "get",
            "--cacert",
            ca,
            "--http",
            version,
            f"{server.origin}/small.txt",
        ]
    ]
    quiet = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert quiet.stderr == b""
    env = {"SSLKEYLOGFILE": str(log["client"])}
    told = subprocess.run(command, capture_output=True, timeout=60, check=True, env=env)
    assert str(log["client"]) in told.stderr.decode()
    assert any(str(log["server"]) in line for line in server.lines)
    ours = secrets(log["client"])
    assert {label for label, _ in ours} >= {"CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"}
    assert ours.items() <= secrets(log["server"]).items()
    assert log["server"].stat().st_mode & 0o077 == 0


def test_key_log_that_cannot_be_written_is_an_error(identity, site, tmp_path):
    command = [str(part) for part in serve_command(site.root, identity)]
    env = {"SSLKEYLOGFILE": str(tmp_path / "no" / "such" / "folder")}
    done = subprocess.run(command, capture_output=True, timeout=60, env=env)
    assert done.returncode == 73
    assert re.fullmatch(r"error: [^\n]+SSLKEYLOGFILE[^\n]+\n", done.stderr.decode())
