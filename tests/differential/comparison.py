"""Compares the route that a gateway chose with the one for the server's interpretation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.clients.kept import Spelled
from harness.clients.spelled import VERSIONS

from .routes import Segments, Site, route_of
from .servers import Asked, Reading, Understood, without_empty


@dataclass
class Comparison:
    """The requests over each protocol, and the server's interpretation."""

    sites: Sequence[Site]
    asked: Asked = field(default_factory=dict)
    reading: Reading = field(default_factory=dict)
    is_told_all: bool = False
    """Whether the server is told the prefix that was stripped from paths."""

    def reached(self, version: str) -> float:
        """Returns the share of the requests over a protocol that the server received."""
        asked = [number for number in self.asked if version_of(number) == version]
        return sum(number in self.reading for number in asked) / len(asked)

    def disagreements(self, sites: Sequence[Site] | None = None) -> list[str]:
        """Returns requests that the server interpreted as those of another route.

        `sites`: instead of the gateway's sites.
        """
        found = []
        for number, several in self.reading.items():
            for understood in several:
                if why := self._disagreement(sites or self.sites, understood):
                    found.append(
                        f"HTTP/{version_of(number)} {self.asked[number][0]}, as {understood}: {why}"
                    )
        return found

    def _disagreement(self, sites: Sequence[Site], understood: Understood) -> str | None:
        routes = {str(route.number): route for site in self.sites for route in site.routes}
        marked = routes.get(understood.mark)
        if marked is None:
            return "no route has this mark"
        # Below a stripped prefix there is another `/admin`.
        if understood.own_rule and not marked.strips:
            return "a rule of the server's own protects it"
        taken = () if self.is_told_all else marked.prefix
        for path in understood.paths:
            for reading in readings(taken + path):
                for host in understood.hosts:
                    route = route_of(sites, understood.method, host, reading)
                    if route is None or route.number != marked.number or route.is_protected:
                        return f"it is for {route}, and came by {marked}"
        return None

    def differences(self) -> list[str]:
        """Returns requests that another protocol interpreted differently."""
        found = []
        for number, (request, _) in self.asked.items():
            version, _, position = number.partition("-")
            if version != VERSIONS[0]:
                continue
            outcomes = {each: self._outcome(f"{each}-{position}") for each in VERSIONS}
            if any(
                outcomes[each] != outcomes[version] and not may_differ(request, outcomes[each])
                for each in VERSIONS
            ):
                statuses = {each: self.asked[f"{each}-{position}"][1].status for each in VERSIONS}
                found.append(f"{request}: {statuses} {outcomes}")
        return found

    def _outcome(self, number: str) -> frozenset[Understood] | str | None:
        """Returns the server's interpretation, or the mark of the route that answered, or None if
        the request was rejected.
        """
        if several := self.reading.get(number):
            return frozenset(several)
        return self.asked[number][1].headers.get("x-route")


def version_of(number: str) -> str:
    return number.partition("-")[0]


def readings(path: Segments) -> Iterator[Segments]:
    """Returns a path as it is, and with its dot segments resolved. Nothing is above the root."""
    yield path
    if b"." not in path and b".." not in path:
        return
    kept: list[bytes] = []
    for segment in path:
        if segment == b"..":
            kept = kept[:-1]
        elif segment != b".":
            kept.append(segment)
    if path[-1] in (b".", b".."):
        kept.append(b"")
    yield without_empty(kept or [b""])


def may_differ(request: Spelled, outcome: frozenset[Understood] | str | None) -> bool:
    """Returns whether HTTP/2 or HTTP/3 may have this outcome where HTTP/1.1 has another.

    - A request for another protocol that the route does not allow is an ordinary request over
      HTTP/1.1, and rejected in the others, as any 2xx would start that protocol.
    - `connection` is rejected, since it belongs to HTTP/1.1.
    - A scheme in capitals is rejected; the target of HTTP/1.1 is a URI, whose scheme is
      case-insensitive.
    - The HTTP/2 library drops everything after `#`, where the others reject the request: then the
      server must not have seen it, which the comparison with routes has shown.
    """
    is_reached = isinstance(outcome, frozenset)
    if b"#" in request.path:
        return True
    if request.protocol:
        return not is_reached
    if request.scheme.isupper() or any(name == "connection" for name, _ in request.fields):
        return outcome is None
    return False
