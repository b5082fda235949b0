"""Several `pronghorn run` that share TLS sessions, and clients that go from one to another."""

from __future__ import annotations

import re
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from aioquic.asyncio.client import connect
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.tls import SessionTicket

from .admin import metrics
from .certificates import Identity
from .clients.aioquic_h3 import H3Client, ask_with_aioquic
from .first_flight import FirstFlight, Recorder
from .gateway import SITE, Gateway
from .server import Server, pronghorn
from .waiting import DEADLINE_SECONDS, eventually

NAME = "127.0.0.1"
TIMEOUT = "5s"
"""Longest wait for Redis in tests that are not about its absence: no busy machine reaches it."""


def new_secret() -> str:
    return secrets.token_hex(32)


class Node:
    """One server of a fleet, with a folder of its own."""

    def __init__(self, name: str, gateway: Gateway, server: Server):
        self.name = name
        self.gateway = gateway
        self.server = server
        self.origin = server.origin
        self.port = server.port

    @property
    def admin(self) -> Path:
        return self.gateway.folder / "state/admin.sock"

    def metrics(self) -> dict[str, float]:
        return metrics(self.admin)

    def value(self, name: str) -> int:
        return int(self.metrics()[f"pronghorn_{name}"])

    def reload(self) -> None:
        command = [str(pronghorn()), "reload", "-c", str(self.gateway.file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
        assert done.returncode == 0, done.stderr

    def is_connected(self) -> bool:
        return self.value("shared_sessions_servers_reachable") == 1


class Fleet:
    """Nodes that are configured alike; each has a name and a port of its own."""

    def __init__(
        self,
        start: Callable[..., Server],
        folder: Path,
        identity: Identity,
        routes: str,
        redis: Sequence[str],
        *,
        secrets: str | None = None,
        timeout: str = TIMEOUT,
        sessions: str = "",
        limits: str = "",
    ):
        self._start, self.folder, self.identity, self.routes = start, folder, identity, routes
        self.secrets_file = folder / "secrets"
        self.secrets_source = secrets or str(self.secrets_file)
        self.write_secrets(new_secret())
        addresses = ", ".join(f'"{address}"' for address in redis)
        self.tables = (
            f'[fleet.sessions]\nredis = [{addresses}]\ntimeout = "{timeout}"\n{sessions}\n'
            f"[limits]\n{limits}\n"
        )
        self.nodes: list[Node] = []

    def write_secrets(self, *lines: str) -> None:
        """Replaces the file of the secrets, which all nodes read."""
        new = self.secrets_file.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(self.secrets_file)

    def secrets(self) -> list[str]:
        return self.secrets_file.read_text().split()

    def start(self, name: str, *, listen: str = "127.0.0.1:0", **options) -> Node:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        gateway = Gateway(folder, self.identity)
        own = f'[fleet]\nnode = "{name}"\nsecrets = "{self.secrets_source}"\n'
        gateway.write(
            SITE + self.routes,
            server=f'state_dir = "state"\n{own}{self.tables}',
            listen=(listen,),
            workers=2,
        )
        node = Node(name, gateway, self._start(gateway.command(), **options))
        self.nodes.append(node)
        return node

    def start_all(self, *names: str, **options) -> list[Node]:
        """Starts nodes, which are connected to Redis on return."""
        started = [self.start(name, **options) for name in names]
        for node in started:
            eventually(f"node {node.name} to connect to Redis", node.is_connected)
        return started

    def reload(self) -> None:
        for node in self.nodes:
            node.reload()

    def sum(self, name: str) -> int:
        return sum(node.value(name) for node in self.nodes)


async def tickets_from(node: Node, ca: Path, count: int) -> list[SessionTicket]:
    """Returns tickets from full handshakes of aioquic, and waits until their sessions are stored."""
    tickets: list[SessionTicket] = []
    stored = node.value("shared_sessions_stored_total")
    while len(tickets) < count:
        new: list[SessionTicket] = []
        await ask_with_aioquic(node.origin, ca, new, early=False, path="/small.txt")
        tickets += new
    sent = len(tickets)
    eventually(
        "the sessions to be stored",
        lambda: node.value("shared_sessions_stored_total") >= stored + sent,
    )
    return tickets[:count]


def early_flight(ticket: SessionTicket, ca: Path, authority: str, path: str) -> FirstFlight:
    """Returns the datagrams that aioquic sends before it receives any: a ClientHello with the
    ticket, and a request in early data.
    """
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=H3_ALPN, server_name=NAME, session_ticket=ticket
    )
    configuration.load_verify_locations(cafile=str(ca))
    quic = QuicConnection(configuration=configuration)
    now = time.time()
    quic.connect((NAME, 443), now)
    http = H3Connection(quic)
    head = [(b":method", b"GET"), (b":scheme", b"https")]
    head += [(b":authority", authority.encode()), (b":path", path.encode())]
    http.send_headers(quic.get_next_available_stream_id(), head, end_stream=True)
    return FirstFlight("3", [data for data, _ in quic.datagrams_to_send(now)])


class SecondPort(Recorder):
    """Forwards the datagrams of a client's first port, and holds back those of its others: quic-go
    has a port for each connection, and no connection ID of its own.
    """

    def __init__(self, server_port: int):
        super().__init__(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), server_port)
        self.back = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.back.connect(self.server)
        self._open.append(self.back)
        self.client = None
        self.last = 0.0
        """When the last datagram was held back."""

    def handle(self, readable: socket.socket, watched: list[socket.socket]) -> None:
        if self.back not in watched:
            watched.append(self.back)
        if readable is self.back:
            self.front.sendto(self.back.recv(65535), self.client)
            return
        data, client = self.front.recvfrom(65535)
        self.client = self.client or client
        if client == self.client:
            self.back.send(data)
        else:
            self.last = time.monotonic()
            self.held.append(data)

    def flight(self) -> FirstFlight:
        """Waits for a whole flight: with early data in it, and then silence."""

        def is_whole() -> bool:
            has_early_data = any(map(holds_early_data, list(self.held)))
            return has_early_data and time.monotonic() - self.last > 0.05

        eventually("the client sends early data on its second connection", is_whole)
        return FirstFlight("3", list(self.held))


def holds_early_data(datagram: bytes) -> bool:
    """Whether a datagram of QUIC version 1 contains a 0-RTT packet (RFC 9000 section 17.2.3)."""
    at = 0
    while at < len(datagram) and datagram[at] & 0x80:
        kind = datagram[at] >> 4 & 3
        if kind == 1:
            return True
        at += 5
        for _ in range(2):
            at += 1 + datagram[at]
        if kind == 0:
            size, at = variable(datagram, at)
            at += size
        size, at = variable(datagram, at)
        at += size
    return False


def variable(data: bytes, at: int) -> tuple[int, int]:
    """Parses a variable-length integer (RFC 9000 section 16); returns it and where it ends."""
    end = at + (1 << (data[at] >> 6))
    return int.from_bytes(data[at:end]) & ((1 << (8 * (end - at) - 2)) - 1), end


def send_at_once(flight: FirstFlight, ports: Sequence[int]) -> list[socket.socket]:
    """Sends a flight to several servers at the same moment; the caller closes the sockets."""
    senders = []
    for port in ports:
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.settimeout(DEADLINE_SECONDS)
        sender.connect(("127.0.0.1", port))
        senders.append(sender)
    for piece in flight.pieces:
        for sender in senders:
            sender.send(piece)
    return senders


def session_of_openssl(file: Path) -> dict[str, str]:
    """Returns the fields of a session file, such as `Master-Key` and `Session-ID`."""
    text = subprocess.run(
        ["openssl", "sess_id", "-in", str(file), "-noout", "-text"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return dict(re.findall(r"^ +([\w-]+) *: ([0-9A-F]+)$", text, re.MULTILINE))


async def token_from(node: Node, ca: Path, token: bytes = b"") -> bytes:
    """Sends a request on a connection that begins with an address token; returns a new one."""
    tokens: list[bytes] = []
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=H3_ALPN, server_name=NAME, token=token
    )
    configuration.load_verify_locations(cafile=str(ca))
    async with connect(
        NAME,
        node.port,
        configuration=configuration,
        create_protocol=H3Client,
        token_handler=tokens.append,
    ) as client:
        client.authority = f"{NAME}:{node.port}"
        assert (await client.fetch("/small.txt")).status == 200
        # Once the next response is here, the tokens have arrived.
        await client.fetch("/small.txt")
    return tokens[-1]
