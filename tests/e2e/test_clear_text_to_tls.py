"""Clear-text HTTP to a TLS port gets an error response in the client's protocol."""

from __future__ import annotations

import contextlib
import socket
import subprocess

import h2.config
import h2.connection
import pytest

from harness.server import Server
from harness.serving import wait_until_read

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


def answer(server: Server, *pieces: bytes) -> bytes:
    """Returns all bytes until the connection ends; each piece is sent after the one before has been
    read.
    """
    with socket.create_connection((server.host, server.port), 60) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The server may respond before the last piece, and closes the connection of a client that
        # pauses then.
        with contextlib.suppress(OSError):
            for piece in pieces[:-1]:
                plain.sendall(piece)
                wait_until_read(plain)
            plain.sendall(pieces[-1])
        return b"".join(iter(lambda: plain.recv(65536), b""))


def test_curl_gets_an_explanation(server):
    command = ["curl", "-sS", "-i", "--max-time", "60", f"http://{server.host}:{server.port}/"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    head, _, body = (
        done.stdout.partition("\n\n")
        if "\r\n" not in done.stdout
        else done.stdout.partition("\r\n\r\n")
    )
    assert head.startswith("HTTP/1.1 400 ")
    assert "https://" in body


def test_curl_gets_the_explanation_after_an_upload_without_a_reset(server, tmp_path):
    (tmp_path / "data").write_bytes(bytes(300_000))
    url = f"http://{server.host}:{server.port}/"
    command = [
        "curl",
        "-sS",
        "-o",
        "-",
        "-w",
        "%{http_code}",
        "--data-binary",
        f"@{tmp_path / 'data'}",
        url,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.endswith("400")


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "PATCH", "CONNECT"])
def test_every_method_gets_the_error_response(server, method):
    assert answer(server, GET.replace(b"GET", method.encode())).startswith(b"HTTP/1.1 400 ")


def test_response_to_head_has_no_content(server):
    head, _, body = answer(server, GET.replace(b"GET", b"HEAD")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-length: " in head
    assert body == b""


def test_request_sent_byte_by_byte_gets_the_error_response(server):
    assert answer(server, *(bytes([byte]) for byte in GET)).startswith(b"HTTP/1.1 400 ")


def test_http2_with_prior_knowledge_gets_the_error_response(server):
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    assert answer(server, connection.data_to_send()).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "begins",
    [b"\x16\x03\x01\x00\x05hello", b"\x80\x2e\x01\x00\x02\x00", b"get / http\r\n\r\n", b"\0" * 64],
)
def test_other_bytes_get_no_http_response(server, begins):
    assert not answer(server, begins).startswith(b"HTTP")
