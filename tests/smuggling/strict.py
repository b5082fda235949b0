"""A strict parser of RFC 9112, independent of the server's: it accepts only what the RFC allows."""

from __future__ import annotations

import re
from dataclasses import dataclass

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
REQUEST_LINE = re.compile(rb"(" + TOKEN + rb") ([!-~]+) HTTP/1\.([01])\r\n")
FIELD_LINE = re.compile(rb"(" + TOKEN + rb"):[ \t]*([\t -~\x80-\xff]*?)[ \t]*\r\n")
CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t -~\x80-\xff]*)?\r\n")

# RFC 3986 section 3.2.2. Servers accept different subsets of it.
HOST = re.compile(rb"([A-Za-z0-9._~%!$&'()*+,;=-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")
ABSOLUTE = re.compile(rb"https?://" + HOST.pattern + rb"([/?][!-~]*)?")


class MalformedError(ValueError):
    """The stream has no valid request from here on, or ends in the middle of one."""


class BrokenContentError(Exception):
    """The head is valid, but the content is not."""


@dataclass(frozen=True)
class Message:
    method: bytes
    target: bytes
    content: bytes | None
    """None if the head is valid and the content is not: that may show after the response."""


class Reader:
    """Parses requests from the front of a stream."""

    def __init__(self, stream: bytes):
        self.rest = stream

    def take(self, pattern: re.Pattern[bytes]) -> re.Match[bytes]:
        match = pattern.match(self.rest)
        if match is None:
            raise MalformedError(self.rest[:80])
        self.rest = self.rest[match.end() :]
        return match

    def take_bytes(self, size: int) -> bytes:
        if len(self.rest) < size:
            raise MalformedError("the stream ends in content")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def end_of_line(self) -> None:
        if self.take_bytes(2) != b"\r\n":
            raise MalformedError("no line end")

    def fields(self) -> list[tuple[bytes, bytes]]:
        lines = []
        while not self.rest.startswith(b"\r\n"):
            match = self.take(FIELD_LINE)
            lines.append((match[1].lower(), match[2]))
        self.end_of_line()
        return lines

    def message(self) -> Message:
        if self.rest.startswith(b"\r\n"):
            self.end_of_line()
        method, target, minor = self.take(REQUEST_LINE).groups()
        fields = self.fields()
        check_target(method, target)
        hosts = [value for name, value in fields if name == b"host"]
        if (
            len(hosts) > 1
            or (minor == b"1" and not hosts)
            or not all(HOST.fullmatch(host) for host in hosts)
        ):
            raise MalformedError("not one host")
        try:
            return Message(method, target, self.content(minor, fields))
        except BrokenContentError:
            self.rest = b""
            return Message(method, target, None)

    def content(self, minor: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
        lengths = [value for name, value in fields if name == b"content-length"]
        codings = [value for name, value in fields if name == b"transfer-encoding"]
        if codings:
            if lengths or minor == b"0" or [coding.lower() for coding in codings] != [b"chunked"]:
                raise MalformedError("more than one framing")
        elif len(lengths) > 1 or not re.fullmatch(rb"[0-9]{1,19}", lengths[0] if lengths else b"0"):
            raise MalformedError("no length")
        try:
            return self.chunks() if codings else self.take_bytes(int(lengths[0]) if lengths else 0)
        except MalformedError as error:
            raise BrokenContentError from error

    def chunks(self) -> bytes:
        content = b""
        while size := int(self.take(CHUNK_LINE)[1], 16):
            content += self.take_bytes(size)
            self.end_of_line()
        self.fields()
        return content


def check_target(method: bytes, target: bytes) -> None:
    if b"#" in target or not (
        target.startswith(b"/")
        or ABSOLUTE.fullmatch(target)
        or (method, target) == (b"OPTIONS", b"*")
        or (method == b"CONNECT" and HOST.fullmatch(target))
    ):
        raise MalformedError("no target")


def messages(stream: bytes) -> list[Message]:
    """Returns the requests at the front of a stream, up to the first invalid one."""
    reader, found = Reader(stream), []
    try:
        while reader.rest:
            found.append(reader.message())
    except MalformedError:
        pass
    return found
