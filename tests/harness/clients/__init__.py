"""Independent clients behind one method: `fetch(url, …) -> Response`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..response import Response
from . import aioquic_h3, curl, go

Fields = list[tuple[str, str]]


@dataclass(frozen=True)
class Fetcher:
    """One client over one protocol; each fetch opens a new connection."""

    name: str
    protocol: str
    _fetch: Callable[..., Response]
    ca: Path | None = None

    def fetch(
        self, url: str, *, method: str = "GET", headers: Fields = (), body: bytes | None = None
    ) -> Response:
        response = self._fetch(url, ca=self.ca, method=method, headers=list(headers), body=body)
        assert response.protocol == self.protocol, f"{self.name} spoke {response.protocol}"
        return response

    def trusting(self, ca: Path) -> Fetcher:
        return Fetcher(self.name, self.protocol, self._fetch, ca)


FETCHERS = [
    Fetcher("curl-h1", "HTTP/1.1", curl.fetcher("HTTP/1.1")),
    Fetcher("curl-h2", "HTTP/2", curl.fetcher("HTTP/2")),
    Fetcher("curl-h3", "HTTP/3", curl.fetcher("HTTP/3")),
    Fetcher("go-h1", "HTTP/1.1", go.fetcher("1.1")),
    Fetcher("go-h2", "HTTP/2", go.fetcher("2")),
    Fetcher("quic-go-h3", "HTTP/3", go.fetcher("3")),
    Fetcher("aioquic-h3", "HTTP/3", aioquic_h3.fetch),
]
