"""Hand-written HTTP/1.1 on a TLS or clear-text socket: requests that no library would send."""

from __future__ import annotations

import socket
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

from ..response import Response
from ..waiting import DEADLINE_SECONDS
from .tls import tls_connection


class RawH1:
    """One connection; without `ca` in clear text."""

    def __init__(self, origin: str, ca: Path | None):
        url = urlsplit(origin)
        self.authority = url.netloc
        if url.scheme == "https":
            self.socket = tls_connection(origin, ca, "http/1.1")
        else:
            self.socket = socket.create_connection((url.hostname, url.port), DEADLINE_SECONDS)

    def __enter__(self) -> RawH1:
        return self

    def __exit__(self, *_exception) -> None:
        self.socket.close()

    def fetch(self, path: str | bytes, *, method: str = "GET", headers=()) -> Response:
        """Sends the path as given, on a connection that is kept."""
        target = path if isinstance(path, bytes) else path.encode()
        lines = [f"host: {self.authority}", *(f"{name}: {value}" for name, value in headers)]
        head = (
            method.encode()
            + b" "
            + target
            + b" HTTP/1.1\r\n"
            + "".join(f"{line}\r\n" for line in lines).encode()
        )
        self.socket.sendall(head + b"\r\n")
        return self.receive(method)

    def receive(self, method: str = "GET") -> Response:
        answer = HTTPResponse(self.socket, method=method)
        answer.begin()
        body = answer.read()
        return Response.with_body(answer.status, "HTTP/1.1", answer.getheaders(), body)
