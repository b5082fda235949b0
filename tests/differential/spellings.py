"""Requests composed of the pieces that servers interpret differently, for paths of routes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from harness.clients.kept import Spelled

from .known import HOST, HOSTS, METHODS, ODD_METHODS, PRETENDING
from .routes import LEAF, NAMES, SCRIPT, SUB_DELIMS, UNRESERVED, Site, escaped

HARMLESS = ["//", "///", "/./", "/%2e/", "/b/../", "/x/%2E%2e/", "/x/y/../.%2e/"]
"""Alternatives to a slash without another meaning."""

BETWEEN = [
    "%2F",
    "%2f",
    "%2F%2F",
    "/%2F",
    "/..%2F",
    "%5C",
    "\\",
    "/%2e%2e%5c",
    "/../",
    "/..;/",
    "/;x/",
    ";/",
    ";x=1/",
    "%3B/",
]
BEHIND = [
    "/",
    "/.",
    "/..",
    ".",
    "%20",
    ";x",
    "%3Bx=1",
    "%2F",
    "%5C",
    "%252F",
    "%00",
    "%c0%af",
    "%",
    "%zz",
    "#x",
    "?/../admin",
]
INSIDE = ["%00", "é", "%c0%af", "%2e", "|", "[", '"', "%25", "%e9", ";", "*", "^", "%0A", "%7f"]
"""Additions that change a path's meaning, at least for some servers."""


def composed(sites: Sequence[Site], random: Random) -> Spelled:
    """Makes a request for a path that a route may match, in some spelling."""
    path = spelled_path(some_segments(sites, random), random)
    protocol = random.choice(["websocket", "websocket", "h2c"]) if random.random() < 0.01 else None
    method = random.choice(METHODS) if random.random() < 0.16 and not protocol else "GET"
    if random.random() < 0.03 and not protocol:
        method = random.choice(ODD_METHODS)
    host = random.choice(
        [HOST] * 6 + [b"x.lab.test"] * 3 + [b"b.test", b"other.org", b"private.test"]
    )
    if random.random() < 0.08:
        host = random.choice(HOSTS)
    elif random.random() < 0.3:
        host = respelled_host(host, random)
    host_field, is_absolute = None, random.random() < 0.1
    if random.random() < 0.06:
        host_field = random.choice([host, host.upper(), random.choice(HOSTS)])
    if b"/" in host or b"#" in host:
        # In a target these would end the host.
        host_field, is_absolute = None, False
    fields = (
        tuple(random.sample(PRETENDING, random.randint(1, 3))) if random.random() < 0.15 else ()
    )
    return Spelled(path, method, host, host_field, is_absolute, fields=fields, protocol=protocol)


def some_segments(sites: Sequence[Site], random: Random) -> list[bytes]:
    names = [random.choice(NAMES) for _ in range(random.randint(0, 2))]
    if random.random() < 0.7:
        routes = [route for site in sites for route in site.routes if route.patterns]
        pattern = random.choice(random.choice(routes).patterns)
        segments = [
            random.choice(NAMES) if segment is None else segment for segment in pattern.segments
        ]
        names = segments + (names[:1] if pattern.is_open and len(segments) == 1 else [])
        if not pattern.is_open and (segments[-1] == LEAF or random.random() < 0.4):
            return names
    if len(names) < 2 and random.random() < 0.15:
        names.insert(random.randint(0, len(names)), SCRIPT)
    return [*names, LEAF]


def spelled_path(segments: list[bytes], random: Random) -> bytes:
    slash = ["/"] * 12 + HARMLESS
    if random.random() < 0.16:
        slash += BETWEEN
    needless = random.choice((0, 0, 0.1, 0.5))
    path = b"/" if random.random() < 0.98 else b""
    for position, segment in enumerate(segments):
        path += random.choice(slash if position else [""] * 12 + slash[12:]).encode()
        path += b"".join(spelled_octet(byte, needless, random) for byte in segment)
    if random.random() < 0.06:
        at = random.randint(1, len(path))
        path = path[:at] + random.choice(INSIDE).encode() + path[at:]
    if random.random() < 0.1:
        path += random.choice(BEHIND).encode()
    return path


def spelled_octet(byte: int, needless: float, random: Random) -> bytes:
    if byte in UNRESERVED:
        is_raw = random.random() >= needless
    elif byte in SUB_DELIMS:
        is_raw = random.random() < 0.5
    else:
        # Some servers are lenient about these.
        is_raw = byte in b'[]"' and random.random() < 0.3
    return bytes([byte]) if is_raw else escaped(byte, random).encode()


def respelled_host(host: bytes, random: Random) -> bytes:
    host = random.choice([host, host.upper(), host.title()])
    return (
        host + random.choice([b"", b"."]) + random.choice([b"", b":443", b":8443", b":00443", b":"])
    )
