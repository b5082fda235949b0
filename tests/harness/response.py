"""The common form of each client's response."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Response:
    """A response.

    Header and trailer names are in lower case, in the order of arrival if the client preserves it.
    """

    status: int
    protocol: str
    """`HTTP/1.1`, `HTTP/2` or `HTTP/3`, as reported by the client."""
    headers: list[tuple[str, str]]
    size: int
    sha256: str
    body: bytes | None = None
    """None if the client only keeps the size and the hash of a large body."""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    local_port: int | None = None
    """The client's port, if known: the same for all responses over one connection."""

    @classmethod
    def with_body(cls, status: int, protocol: str, headers, body: bytes, trailers=()) -> Response:
        return cls(status, protocol, lower(headers), len(body), sha256(body), body, lower(trailers))

    def header(self, name: str) -> str | None:
        """Returns the only value of a field; a repeated field fails the test."""
        values = self.header_values(name)
        assert len(values) < 2, f"{name} has {len(values)} values: {values}"
        return values[0] if values else None

    def header_values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def text(self) -> str:
        assert self.body is not None, f"the body of {self.size} bytes was not stored"
        return self.body.decode()


def lower(fields) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in fields]
