"""Definition of an attack, and its environment: a server with one worker, and an honest client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.clients import curl
from harness.clients.h2_frames import H2Client
from harness.clients.raw_h3 import RawH3
from harness.clients.raw_quic import Port, RawQuic
from harness.server import Server
from harness.waiting import DEADLINE_SECONDS, eventually

MIB = 1 << 20

LISTENS = "0A"
"""The LISTEN state in the kernel's tables: its queues count connections, not bytes."""

HONEST_PROTOCOLS = ["HTTP/3", "HTTP/2", "HTTP/1.1"]


@dataclass(frozen=True)
class Attack:
    """One attack. `run` performs it, checks its effects, and leaves its connections open."""

    name: str
    family: str
    source: str
    """CVE numbers, or the publication."""
    what: str
    limit: str
    """The protection: the name of a limit in `docs/limits.md`, or a rule of the transport."""
    run: Callable[[Ground], None]
    memory_mib: int
    """Maximum growth of the server's memory at its peak, including the kernel's memory for it."""
    cpu_seconds: float
    """CPU time of the server for the attack and the honest client."""
    flags: tuple[str, ...] = ()
    handler: bool = False
    """Runs against the handler that reads content instead of the file server."""
    counters: tuple[str, ...] = ()
    """Counters of the server; at least one must have grown."""


ATTACKS: list[Attack] = []


def attack(**fields):
    """Registers a function as an attack with its name."""

    def register(run: Callable[[Ground], None]):
        ATTACKS.append(Attack(name=run.__name__, run=run, **fields))
        return run

    return register


@dataclass(frozen=True)
class Elsewhere:
    """An attack, or part of one, that is tested in another file."""

    name: str
    family: str
    source: str
    what: str
    limit: str
    tests: tuple[str, ...]
    """As `file::function`."""


@dataclass(frozen=True)
class Uncovered:
    what: str
    source: str
    why: str


class Ground:
    """The server and the attackers' tools.

    Connections made here stay open until the measurement is done.
    """

    def __init__(self, server: Server, ca: Path):
        self.server = server
        self.ca = ca
        self.origin = server.origin
        self._open = ExitStack()
        self.bytes_sent = 0
        self.kernel_bytes = 0
        """The kernel's memory for data that the server sent, in attacks that measure it."""
        self._ports: list[Port] = []

    def keep(self, resource):
        """Enters a context that ends after the measurement."""
        return self._open.enter_context(resource)

    def close(self) -> None:
        self._open.close()

    def port(self) -> Port:
        port = Port(self.origin)
        self._open.callback(port.close)
        self._ports.append(port)
        return port

    def quic(self, **options) -> RawQuic:
        """Opens a connection that has sent nothing yet; it does not verify the certificate."""
        port = options.pop("port", None) or self.port()
        return RawQuic(self.origin, port=port, **options)

    def connected(self, **options) -> RawQuic:
        return self.quic(**options).handshake()

    def h3(self, pairs=(), **options) -> RawH3:
        """Opens a connection with HTTP/3 streams; `pairs` are its settings."""
        port = options.pop("port", None) or self.port()
        return RawH3(self.origin, port=port, **options).open(pairs)

    def h2(self) -> H2Client:
        return self.keep(H2Client(self.origin, self.ca))

    def sent(self, count: int) -> None:
        """Counts bytes sent without the ports."""
        self.bytes_sent += count

    def look_into_the_kernel(self) -> None:
        """Records the bytes in the send queues of the server's connections, sent or not."""
        queued = 0
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, queues, *_ = line.split()
                if state != LISTENS and int(local.rpartition(":")[2], 16) == self.server.port:
                    queued += int(queues.partition(":")[0], 16)
        self.kernel_bytes = max(self.kernel_bytes, queued)

    @property
    def attack_bytes(self) -> int:
        return self.bytes_sent + sum(port.bytes_sent for port in self._ports)

    def eventually(self, what: str, condition: Callable[[], object]) -> object:
        return eventually(what, condition)


@dataclass
class Honest:
    """A client that sends requests over each protocol, on kept connections, for the duration of the
    attack.
    """

    origin: str
    ca: Path
    path: str
    served: int = 0
    failure: Exception | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            with curl.session(self.ca) as session:
                while not self._stop.is_set():
                    for protocol in HONEST_PROTOCOLS:
                        answer = curl.ask(session, protocol, self.origin + self.path)
                        assert answer.status == 200, f"{protocol}: {answer.status}"
                    self.served += 1
        except Exception as error:
            # The main thread reports it.
            self.failure = error

    def check(self) -> None:
        assert self.failure is None, f"the honest client was not served: {self.failure!r}"

    @contextmanager
    def at_work(self) -> Iterator[Honest]:
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        try:
            self.rounds(1)
            yield self
        finally:
            self._stop.set()
            thread.join(2 * DEADLINE_SECONDS)

    def rounds(self, count: int) -> None:
        """Waits until it has been served this many more times over each protocol."""
        target = self.served + count

        def done() -> object:
            return self.served >= target or self.failure

        eventually("an answer for the honest client", done, 2 * DEADLINE_SECONDS)
        self.check()


@dataclass(frozen=True)
class Outcome:
    memory: int
    """Growth of the server's memory at its peak, including the kernel's where the attack measured
    it.
    """
    cpu_seconds: float
    attack_bytes: int
    honest_rounds: int


def carry_out(attack: Attack, server: Server, ca: Path) -> Outcome:
    """Runs an attack with the honest client, which must be served during it and after it."""
    honest = Honest(server.origin, ca, "/bytes/1000" if attack.handler else "/small.txt")
    ground = Ground(server, ca)
    try:
        with honest.at_work():
            memory, cpu = server.forget_peak(), server.cpu_seconds()
            served = honest.served
            attack.run(ground)
            # The attack's connections are still open.
            honest.rounds(2)
            return Outcome(
                max(0, server.peak_resident_bytes() - memory) + ground.kernel_bytes,
                server.cpu_seconds() - cpu,
                ground.attack_bytes,
                honest.served - served,
            )
    finally:
        ground.close()
        honest.check()
