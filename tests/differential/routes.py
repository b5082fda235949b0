"""Routes as in the configuration and as a person understands them, with no code of the gateway."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

Segments = tuple[bytes, ...]
"""The segments of a path, decoded. The last one is empty if the path ends with a slash."""


@dataclass(frozen=True)
class Pattern:
    """A path pattern with wildcards."""

    segments: tuple[bytes | None, ...]
    """None is a wildcard."""
    is_open: bool
    text: str
    """The pattern as written in the configuration."""

    def is_for(self, path: Segments) -> bool:
        fixed = len(self.segments)
        if not (len(path) > fixed if self.is_open else len(path) == fixed):
            return False
        return all(
            given != b"" if own is None else own == given
            for own, given in zip(self.segments, path, strict=False)
        )


@dataclass(frozen=True)
class Route:
    """A route. The first one whose conditions apply answers."""

    number: int
    patterns: tuple[Pattern, ...] = ()
    """Without patterns: all paths."""
    methods: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    is_protected: bool = False
    """It answers 403, and no server may receive its requests."""
    is_compatible: bool = False
    strips: bool = False

    def is_for(self, method: str, host: str, path: Segments) -> bool:
        methods = {*self.methods, "HEAD"} if "GET" in self.methods else set(self.methods)
        return (
            (not self.patterns or any(pattern.is_for(path) for pattern in self.patterns))
            and (not methods or method in methods)
            and (not self.hosts or any(names(pattern, host) for pattern in self.hosts))
        )

    @property
    def prefix(self) -> Segments:
        """Returns the prefix that is stripped from a path."""
        return (
            tuple(segment for segment in self.patterns[0].segments if segment is not None)
            if self.strips
            else ()
        )

    @property
    def conditions(self) -> str:
        """Writes the patterns as in the configuration."""
        texts = [pattern.text for pattern in self.patterns]
        given = {"path": texts, "method": self.methods, "host": self.hosts}
        return ", ".join(
            f"{key} = {json.dumps(value, ensure_ascii=False)}"
            for key, value in given.items()
            if value
        )

    def __str__(self) -> str:
        return f"route {self.number} ({self.conditions})"

    def written(self, action: str) -> str:
        """Writes the route as a table of the configuration."""
        lines = ["[[sites.routes]]", f"match = {{ {self.conditions} }}"]
        lines += ['paths = "compatible"'] * self.is_compatible
        lines += ["strip_prefix = true"] * self.strips
        mark = f'{{ set = {{ "x-route" = "{self.number}" }} }}'
        lines += [f"request_headers = {mark}", f"response_headers = {mark}"]
        lines.append(
            'respond = { status = 403, body = "protected" }' if self.is_protected else action
        )
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Site:
    hosts: tuple[str, ...]
    routes: tuple[Route, ...]

    def written(self, action: str) -> str:
        head = f"[[sites]]\nhosts = {json.dumps(self.hosts)}\n{{tls}}\n"
        return head + "".join(route.written(action) for route in self.routes)


def names(pattern: str, host: str) -> bool:
    return pattern in (host, "*") or (
        pattern.startswith("*.") and host.partition(".")[2] == pattern[2:]
    )


def route_of(sites: Sequence[Site], method: str, host: str, path: Segments) -> Route | None:
    """Returns the route for a request.

    `host` is in lower case, without a port and without a trailing dot.
    """
    named = [
        (pattern.count("*") + (pattern == "*"), site)
        for site in sites
        for pattern in site.hosts
        if names(pattern, host)
    ]
    if not named:
        return None
    site = min(named, key=lambda one: one[0])[1]
    return next((route for route in site.routes if route.is_for(method, host, path)), None)


SCRIPT = b"run.php"
"""A script, in sites that have some."""

NAMES = [
    *(b"admin", b"secret", b"a", b"b", b"Admin"),
    *(b"@staff", b"priv(x)", b"~u", b"a+b", b"x=1,2!", b"$1&'2'", b"a:b"),
    SCRIPT,
    *(
        "priv\u00e9".encode(),
        "\u65e5\u672c".encode(),
        b"a b",
        b"50%",
        b"a%2Fb",
        b"*",
        b"[x]",
        b'"q"',
    ),
]
"""Segments of patterns and of paths, decoded. Few, so that patterns and paths match often."""

LEAF = b"f"
"""A segment that follows each of these, and is not a folder."""

UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
SUB_DELIMS = b"!$&'()*+,;=:@"


def escaped(byte: int, random: Random) -> str:
    return "%" + (f"{byte:02x}" if random.random() < 0.5 else f"{byte:02X}")


def written(segment: bytes, random: Random) -> str:
    """Writes a pattern's segment in one of its possible spellings."""
    text = ""
    is_raw = random.random() < 0.6
    for character in segment.decode():
        octets = character.encode()
        # Pattern characters are always escaped.
        is_raw_here = is_raw and character not in "*%?#/"
        if is_raw_here or (octets[0] in UNRESERVED and random.random() < 0.7):
            text += character
        else:
            text += "".join(escaped(byte, random) for byte in octets)
    return text


def pattern(segments: tuple[bytes | None, ...], is_open: bool, random: Random) -> Pattern:
    parts = ["*" if segment is None else written(segment, random) for segment in segments] + [
        "*"
    ] * is_open
    return Pattern(segments, is_open, "/" + "/".join(parts))


def generated(random: Random) -> list[Site]:
    """Makes sites with routes, the first of which protects `/admin` and all paths below it."""
    count = iter(range(1000))

    def admin(number: int) -> Route:
        both = (pattern((b"admin",), False, random), pattern((b"admin",), True, random))
        return Route(number, both, is_protected=True)

    def some() -> list[Route]:
        return [generated_route(next(count), random) for _ in range(14)]

    def rest(is_compatible: bool) -> Route:
        return Route(next(count), is_compatible=is_compatible)

    everywhere = [
        admin(next(count)),
        Route(next(count), hosts=("admin.test",), is_protected=True),
        *some(),
        rest(True),
    ]
    below = [*some(), rest(False)]
    return [
        Site(("*",), tuple(everywhere)),
        Site(("*.lab.test",), tuple(below)),
        Site(("private.test",), (Route(next(count), is_protected=True),)),
    ]


def generated_route(number: int, random: Random) -> Route:
    name: list[bytes | None] = [random.choice(NAMES) for _ in range(random.choice((1, 1, 2)))]
    if len(name) == 2 and random.random() < 0.4:
        name[0] = None
    form, strips = random.random(), False
    if form < 0.2:
        patterns = [pattern((*name, LEAF), False, random)]
    elif form < 0.5:
        patterns = [pattern(tuple(name), True, random)]
        strips = None not in name and random.random() < 0.4
    elif form < 0.65:
        # A rule with a slash or a semicolon in a path must also list how some servers interpret it.
        both = random.choice((((b"a;v",), (b"a",)), ((b"c/d",), (b"c", b"d"))))
        patterns = [pattern((*one, name[0] or b"a"), True, random) for one in both]
    else:
        patterns = [pattern(tuple(name), is_open, random) for is_open in (False, True)]
    return Route(
        number,
        tuple(patterns),
        methods=random.choice(((), (), (), ("GET",), ("POST", "DELETE"), ("PURGE",))),
        hosts=random.choice(((), (), (), ("app.test",), ("*.test",), ("x.lab.test", "b.test"))),
        is_protected=not strips and random.random() < 0.3,
        is_compatible=random.random() < 0.5,
        strips=strips,
    )
