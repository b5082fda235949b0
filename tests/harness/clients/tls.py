"""TLS over TCP with the standard library, for clients on a plain socket."""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path
from urllib.parse import urlsplit

from ..waiting import DEADLINE_SECONDS


def tls_connection(origin: str, ca: Path, alpn: str | None) -> ssl.SSLSocket:
    url = urlsplit(origin)
    context = ssl.create_default_context(cafile=str(ca))
    if alpn is not None:
        context.set_alpn_protocols([alpn])
    plain = socket.create_connection((url.hostname, url.port), DEADLINE_SECONDS)
    connection = context.wrap_socket(plain, server_hostname=url.hostname)
    assert connection.selected_alpn_protocol() == alpn
    return connection


def vanish(connection: socket.socket) -> None:
    """Closes with a reset, like a client that crashed with unread data."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket.socket.close(connection)
