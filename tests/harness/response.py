"""The one shape that each client's answer is brought into."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Response:
    """An answer. Header and trailer names are in lower case, in the order of arrival where the client keeps it."""

    status: int
    protocol: str
    """`HTTP/1.1`, `HTTP/2` or `HTTP/3`, as the client itself says."""
    headers: list[tuple[str, str]]
    size: int
    sha256: str
    body: bytes | None = None
    """None where the client keeps only the size and the hash of a large body."""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    local_port: int | None = None
    """The client's port, where it tells: the same for all answers that came over one connection."""

    @classmethod
    def with_body(cls, status: int, protocol: str, headers, body: bytes, trailers=()) -> Response:
        return cls(status, protocol, lower(headers), len(body), sha256(body), body, lower(trailers))

    def header(self, name: str) -> str | None:
        """The only value of a field; a field that came twice fails the test."""
        values = self.header_values(name)
        assert len(values) < 2, f"{name} came {len(values)} times: {values}"
        return values[0] if values else None

    def header_values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def text(self) -> str:
        assert self.body is not None, f"the body of {self.size} bytes was not kept"
        return self.body.decode()


def lower(fields) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in fields]
