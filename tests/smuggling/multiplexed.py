"""Cases over HTTP/2 and HTTP/3: requests that would be another request, or two, when forwarded as
HTTP/1.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from .message import INNER

SEQUEL = "PortSwigger, HTTP/2: The Sequel is Always Worse (2021)"
HEAD = "GET /bytes/13 HTTP/1.1"

Fields = list[tuple[str, str]]


@dataclass(frozen=True)
class FieldCase:
    """A request with some fields replaced, and others appended."""

    name: str
    source: str
    replaced: tuple[tuple[str, str | None], ...] = ()
    """None removes a field."""
    added: tuple[tuple[str, str], ...] = ()
    content: bytes = b""

    def fields(self, authority: str) -> Fields:
        usual = {":method": "POST", ":scheme": "https", ":authority": authority, ":path": "/echo"}
        changed = [(name, dict(self.replaced).get(name, value)) for name, value in usual.items()]
        return [(name, value) for name, value in changed if value is not None] + list(self.added)


def replaces(name: str, source: str, field: str, value: str | None) -> FieldCase:
    return FieldCase(name, source, replaced=((field, value),))


def adds(name: str, source: str, *fields: tuple[str, str], content: bytes = INNER) -> FieldCase:
    return FieldCase(name, source, added=fields, content=content)


FIELD_CASES = [
    adds("H2.TE", SEQUEL, ("transfer-encoding", "chunked"), content=b"0\r\n\r\n" + INNER),
    adds("H2.TE identity", SEQUEL, ("transfer-encoding", "identity")),
    adds("H2.CL: a length of 0", SEQUEL, ("content-length", "0")),
    adds("a length below the content", "CVE-2021-21295", ("content-length", "3")),
    adds("a length above the content", "CVE-2021-21295", ("content-length", "1000")),
    adds(
        "a length and a bare end of stream", "CVE-2026-33555", ("content-length", "39"), content=b""
    ),
    adds(
        "two lengths that differ",
        "CVE-2021-21409",
        ("content-length", str(len(INNER))),
        ("content-length", "0"),
    ),
    adds("a length with a sign", SEQUEL, ("content-length", f"+{len(INNER)}")),
    adds("a length that is no number", SEQUEL, ("content-length", "x")),
    adds("a length that is empty", "CVE-2023-40225", ("content-length", "")),
    adds("a line end in a value", SEQUEL, ("foo", f"bar\r\n\r\n{HEAD}")),
    adds(
        "a TE in a value",
        SEQUEL,
        ("foo", "bar\r\ntransfer-encoding: chunked"),
        content=b"0\r\n\r\n" + INNER,
    ),
    adds("LF in a value", SEQUEL, ("foo", "bar\nhost: inner")),
    adds("CR in a value", SEQUEL, ("foo", "bar\rhost: inner")),
    adds("NUL in a value", SEQUEL, ("foo", "bar\x00")),
    adds("a line end in a name", SEQUEL, ("foo: bar\r\ntransfer-encoding", "chunked")),
    adds("a colon in a name", SEQUEL, ("transfer-encoding: chunked", "x")),
    adds("a space in a name", SEQUEL, ("transfer-encoding ", "chunked")),
    adds("NUL in a name", SEQUEL, ("foo\x00", "bar")),
    adds("an empty name", SEQUEL, ("", "bar")),
    adds("upper case in a name", "RFC 9114 4.2", ("Transfer-Encoding", "chunked")),
    adds("connection", "RFC 9114 4.2", ("connection", "transfer-encoding")),
    adds("connection: close", "RFC 9114 4.2", ("connection", "close")),
    adds("keep-alive", "RFC 9114 4.2", ("keep-alive", "timeout=5")),
    adds("proxy-connection", "RFC 9114 4.2", ("proxy-connection", "keep-alive")),
    adds("upgrade", "RFC 9114 4.2", ("upgrade", "h2c")),
    adds("te other than trailers", "RFC 9114 4.2", ("te", "chunked")),
    adds("a host that contradicts", SEQUEL, ("host", "inner")),
    adds("two hosts", SEQUEL, ("host", "inner"), ("host", "other")),
    adds("a second path", SEQUEL, (":path", "/bytes/13")),
    adds("a second method", SEQUEL, (":method", "GET")),
    adds("a second authority", SEQUEL, (":authority", "inner")),
    adds("a pseudo-header behind a field", SEQUEL, ("foo", "bar"), (":path", "/bytes/13")),
    adds("a pseudo-header nobody knows", SEQUEL, (":foo", "bar")),
    replaces("a request in the method", SEQUEL, ":method", f"{HEAD}\r\nfoo: bar\r\n\r\nGET"),
    replaces("a space in the method", SEQUEL, ":method", "GET /bytes/13 HTTP/1.1"),
    replaces("an empty method", SEQUEL, ":method", ""),
    replaces(
        "a request in the path", SEQUEL, ":path", f"/echo HTTP/1.1\r\nhost: inner\r\n\r\n{HEAD}"
    ),
    replaces("a space in the path", SEQUEL, ":path", "/bytes/13 HTTP/1.1"),
    replaces("a tab in the path", SEQUEL, ":path", "/bytes/13\tHTTP/1.1"),
    replaces("NUL in the path", SEQUEL, ":path", "/bytes/1\x003"),
    replaces("a fragment in the path", "CVE-2023-45539", ":path", "/bytes/13#x"),
    replaces("a path that is none", SEQUEL, ":path", "bytes/13"),
    replaces("an absolute path", SEQUEL, ":path", "https://inner/bytes/13"),
    replaces("an empty path", SEQUEL, ":path", ""),
    replaces("no path", SEQUEL, ":path", None),
    replaces("a line end in the authority", SEQUEL, ":authority", "localhost\r\nfoo: bar"),
    replaces("a space in the authority", SEQUEL, ":authority", "localhost inner"),
    replaces("a path in the authority", SEQUEL, ":authority", "localhost/bytes/13"),
    replaces("a user in the authority", "RFC 9114 4.3.1", ":authority", "user@localhost"),
    replaces("an empty authority", "RFC 9114 4.3.1", ":authority", ""),
    replaces("no authority", "RFC 9114 4.3.1", ":authority", None),
    replaces("a request in the scheme", SEQUEL, ":scheme", "https://localhost/bytes/13?"),
    replaces("a line end in the scheme", SEQUEL, ":scheme", "http\r\nfoo: bar"),
    replaces("no scheme", SEQUEL, ":scheme", None),
    FieldCase("CONNECT with a path", "CVE-2026-100663", replaced=((":method", "CONNECT"),)),
]
