"""Histograms of metrics: the longest turn of the workers within a time."""

from __future__ import annotations

import http.client
import re
import socket
from dataclasses import dataclass
from pathlib import Path

TURN = "pronghorn_worker_turn_seconds"
ANSWER_SECONDS = 20


class MetricsError(Exception):
    """A server has no such metric."""


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path):
        super().__init__("localhost", timeout=ANSWER_SECONDS)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def exposition(path: Path) -> str:
    """Returns the metrics of the server whose admin API is this socket."""
    connection = UnixConnection(path)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    if response.status != 200:
        raise MetricsError(f"GET /metrics was answered with {response.status}: {text[:200]}")
    return text


@dataclass(frozen=True)
class Histogram:
    """Durations by bucket: those above the previous bound and not above this one, in seconds."""

    buckets: tuple[tuple[float, int], ...]
    count: int
    seconds: float

    @classmethod
    def parse(cls, text: str, name: str = TURN) -> Histogram:
        """Reads a histogram without labels from Prometheus' text format."""
        bound = re.compile(rf'^{name}_bucket{{le="([^"]+)"}} (\d+)$', re.MULTILINE)
        total = re.search(rf"^{name}_count (\d+)$", text, re.MULTILINE)
        seconds = re.search(rf"^{name}_sum (\S+)$", text, re.MULTILINE)
        cumulative = [(float(found[1]), int(found[2])) for found in bound.finditer(text)]
        if not cumulative or total is None or seconds is None:
            raise MetricsError(f"the server has no metric {name}; use a current program")
        buckets, before = [], 0
        for limit, number in cumulative:
            buckets.append((limit, number - before))
            before = number
        return cls(tuple(buckets), int(total[1]), float(seconds[1]))

    def since(self, before: Histogram) -> Histogram:
        """Returns what was added after an earlier reading."""
        if [bound for bound, _ in self.buckets] != [bound for bound, _ in before.buckets]:
            raise MetricsError("the buckets changed between two readings")
        pairs = zip(self.buckets, before.buckets, strict=True)
        buckets = tuple((bound, now - then) for (bound, now), (_, then) in pairs)
        return Histogram(buckets, self.count - before.count, self.seconds - before.seconds)

    def longest(self) -> float | None:
        """Returns the bound that no duration exceeds; None without any."""
        return max((bound for bound, number in self.buckets if number), default=None)

    def above(self, limit: float) -> int:
        """Returns the number of durations above one of the bounds."""
        return sum(number for bound, number in self.buckets if bound > limit)

    def mean(self) -> float | None:
        return self.seconds / self.count if self.count else None
