"""An impaired network: a UDP proxy that drops, reorders, duplicates, corrupts and readdresses
datagrams.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

REORDER_SECONDS = 0.004
"""Delay of a datagram that is overtaken."""

UP = "up"
DOWN = "down"


@dataclass(frozen=True)
class Impairment:
    """Probabilities of each impairment of a datagram, in both directions."""

    loss: float = 0.0
    reorder: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    delay_seconds: float = 0.0


@dataclass
class Flow:
    """One client address and its socket towards the server."""

    client: tuple
    upstream: socket.socket
    datagrams: list[tuple[str, bytes]] = field(default_factory=list)
    """Direction and content, if recorded."""
    held: bytes | None = None
    """The first datagram, if it must arrive second; empty once sent."""


class UdpProxy:
    """Forwards between clients of `port` and the server at `server_port`, on 127.0.0.1."""

    def __init__(
        self,
        server_port: int,
        *,
        seed: str,
        impairment: Impairment | None = None,
        swap_first: bool = False,
        rebind_at: Sequence[int] = (),
        rebind_address: str = "127.0.0.1",
        blackhole_at: int | None = None,
        blackhole_seconds: float = 1.0,
        record: bool = False,
    ):
        """Starts the proxy.

        An event at a moment happens after this many datagrams in both directions.

        With `swap_first`, the first datagram of each client arrives after its second one.
        """
        self.server = ("127.0.0.1", server_port)
        self.impairment = impairment or Impairment()
        self._swap_first = swap_first
        self._rebind_at = list(rebind_at)
        self._rebind_address = rebind_address
        self._blackhole_at = blackhole_at
        self._blackhole_seconds = blackhole_seconds
        self._blackhole_until = 0.0
        self.seen = Counter()
        """Counts of: passed, loss, reorder, duplicate, corrupt, blackhole, rebind, swap."""
        self.flows: dict[tuple, Flow] = {}
        self._record = record
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._front.bind(("127.0.0.1", 0))
        self._wake, self._woken = socket.socketpair()
        self._waiting: list[tuple[float, int, socket.socket, tuple, bytes]] = []
        self._order = itertools.count()
        self._old: list[socket.socket] = []
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def port(self) -> int:
        return self._front.getsockname()[1]

    @property
    def origin(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def __enter__(self) -> UdpProxy:
        self._thread.start()
        return self

    def __exit__(self, *_exception) -> None:
        self._ended = True
        self._wake.send(b"x")
        self._thread.join()
        for each in [
            self._front,
            self._wake,
            self._woken,
            *self._old,
            *(flow.upstream for flow in self.flows.values()),
        ]:
            each.close()

    def rebind(self) -> None:
        """Gives each client another port, and optionally another address, towards the server: like
        a NAT rebinding.
        """
        self.seen["rebind"] += 1
        with self._lock:
            for flow in self.flows.values():
                self._old.append(flow.upstream)
                flow.upstream = bound(self._rebind_address)
        self._wake.send(b"x")

    def _run(self) -> None:
        while not self._ended:
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                _, _, via, to, data = heapq.heappop(self._waiting)
                send(via, data, to)
            with self._lock:
                upstreams = {flow.upstream: flow for flow in self.flows.values()}
            timeout = max(self._waiting[0][0] - now, 0) if self._waiting else None
            readable, _, _ = select.select([self._front, self._woken, *upstreams], [], [], timeout)
            for each in readable:
                if each is self._woken:
                    each.recv(1)
                elif each is self._front:
                    self._from_client()
                else:
                    self._from_server(upstreams[each], each)

    def _from_client(self) -> None:
        data, client = self._front.recvfrom(65535)
        with self._lock:
            flow = self.flows.get(client)
            if flow is None:
                flow = self.flows[client] = Flow(client, bound("127.0.0.1"))
        if self._record:
            flow.datagrams.append((UP, data))
        # Before its route is chosen: a client that only waits would be lost if all its
        # acknowledgements left by the old port.
        self._come_to_pass()
        if self._swap_first and flow.held is None:
            flow.held = data
            return
        self._pass_on(flow.upstream, self.server, data)
        if flow.held:
            self.seen["swap"] += 1
            self._pass_on(flow.upstream, self.server, flow.held)
            flow.held = b""

    def _from_server(self, flow: Flow, upstream: socket.socket) -> None:
        try:
            data = upstream.recv(65535)
        except ConnectionRefusedError:
            return  # The server is not running (any more).
        if self._record:
            flow.datagrams.append((DOWN, data))
        self._come_to_pass()
        self._pass_on(self._front, flow.client, data)

    def _come_to_pass(self) -> None:
        """Runs the events that are due after this many datagrams."""
        if self._rebind_at and self.seen["passed"] >= self._rebind_at[0]:
            self._rebind_at.pop(0)
            self.rebind()
        if self._blackhole_at is not None and self.seen["passed"] >= self._blackhole_at:
            self._blackhole_at = None
            self._blackhole_until = time.monotonic() + self._blackhole_seconds

    def _pass_on(self, via: socket.socket, to: tuple, data: bytes) -> None:
        what, chance = self.impairment, self._random.random
        if time.monotonic() < self._blackhole_until:
            self.seen["blackhole"] += 1
            return
        if chance() < what.loss:
            self.seen["loss"] += 1
            return
        if chance() < what.corrupt:
            self.seen["corrupt"] += 1
            at = self._random.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ (1 << self._random.randrange(8))]) + data[at + 1 :]
        delay = what.delay_seconds
        if chance() < what.reorder:
            self.seen["reorder"] += 1
            delay += REORDER_SECONDS
        copies = 1
        if chance() < what.duplicate:
            self.seen["duplicate"] += 1
            copies = 2
        self.seen["passed"] += 1
        for _ in range(copies):
            if delay:
                heapq.heappush(
                    self._waiting, (time.monotonic() + delay, next(self._order), via, to, data)
                )
            else:
                send(via, data, to)


def bound(address: str) -> socket.socket:
    upstream = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    upstream.bind((address, 0))
    return upstream


def send(via: socket.socket, data: bytes, to: tuple) -> None:
    # A send error is a loss, as on any network.
    with contextlib.suppress(OSError):
        via.sendto(data, to)
