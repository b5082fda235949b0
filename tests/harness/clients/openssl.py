"""Connections of `openssl s_client`, which resumes sessions and sends early data over TCP."""

from __future__ import annotations

import subprocess

from ..waiting import DEADLINE_SECONDS


def openssl(
    port: int,
    *flags,
    request: bytes = b"",
    name: str = "localhost",
    version: str = "-tls1_3",
) -> str:
    """Returns the output of `openssl s_client` for a connection over TCP."""
    command = [
        "openssl",
        "s_client",
        "-connect",
        f"127.0.0.1:{port}",
        "-servername",
        name,
        version,
        "-alpn",
        "http/1.1",
    ]
    done = subprocess.run(
        [*command, "-ign_eof", *map(str, flags)],
        input=request,
        capture_output=True,
        timeout=DEADLINE_SECONDS,
    )
    return done.stdout.decode(errors="replace")


def request(method: str, path: str, size: int = 3) -> bytes:
    """Returns a request, with content of this size if it is a POST, after which the server closes
    the connection.
    """
    content = b"p" * size if method == "POST" else b""
    length = f"content-length: {size}\r\n" if method == "POST" else ""
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{length}\r\n"
    return head.encode() + content
