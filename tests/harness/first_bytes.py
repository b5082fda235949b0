"""Measures the bytes of a response in its first round trip, over HTTP/2 and HTTP/3.

    python -m harness.first_bytes HOST PORT PATH [PATH...]

sends a request for each path at the same time, each on a new connection, directly after the
handshake, and prints JSON: `Arrivals` for each protocol and path.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.settings
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent, StreamDataReceived

WINDOW_BYTES = 6_000_000
"""As large as a browser's windows."""
DEADLINE_SECONDS = 30


@dataclass
class Arrivals:
    """Arrival times of a response, in seconds since its request."""

    bytes_by_time: list[tuple[float, int]] = field(default_factory=list)
    """Bytes after each read: of the response's stream, or over HTTP/2 of the connection."""
    done: float = 0.0


def over_http2(host: str, port: int, path: str) -> Arrivals:
    arrivals = Arrivals()
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, port), DEADLINE_SECONDS) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = context.wrap_socket(raw, server_hostname="localhost")
        http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        http.initiate_connection()
        http.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES})
        http.increment_flow_control_window(WINDOW_BYTES)
        http.send_headers(1, request(path), end_stream=True)
        began, received = time.monotonic(), 0
        tls.sendall(http.data_to_send())
        while not arrivals.done:
            data = tls.recv(1 << 16)
            assert data, "the server closed the connection"
            now, received = time.monotonic() - began, received + len(data)
            arrivals.bytes_by_time.append((now, received))
            if any(isinstance(event, h2.events.StreamEnded) for event in http.receive_data(data)):
                arrivals.done = now
            tls.sendall(http.data_to_send())
    return arrivals


class Client(QuicConnectionProtocol):
    """One connection with one request."""

    arrivals: Arrivals

    def ask(self, path: str) -> None:
        self.arrivals, self.received, self.ended = Arrivals(), 0, asyncio.Event()
        self.http = H3Connection(self._quic)
        self.http.send_headers(
            0, [(name.encode(), value.encode()) for name, value in request(path)], end_stream=True
        )
        self.began = time.monotonic()
        self.transmit()

    def quic_event_received(self, event: QuicEvent) -> None:
        if not hasattr(self, "http"):
            return
        if isinstance(event, StreamDataReceived) and event.stream_id == 0:
            now, self.received = time.monotonic() - self.began, self.received + len(event.data)
            self.arrivals.bytes_by_time.append((now, self.received))
        for each in self.http.handle_event(event):
            if isinstance(each, DataReceived) and each.stream_ended:
                self.arrivals.done = time.monotonic() - self.began
                self.ended.set()


async def over_http3(host: str, port: int, path: str) -> Arrivals:
    configuration = QuicConfiguration(
        alpn_protocols=H3_ALPN,
        server_name="localhost",
        verify_mode=ssl.CERT_NONE,
        max_data=WINDOW_BYTES,
        max_stream_data=WINDOW_BYTES,
    )
    async with connect(host, port, configuration=configuration, create_protocol=Client) as client:
        client.ask(path)
        await asyncio.wait_for(client.ended.wait(), DEADLINE_SECONDS)
        return client.arrivals


def request(path: str) -> list[tuple[str, str]]:
    return [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path)]


def main() -> None:
    host, port, *paths = sys.argv[1:]
    with ThreadPoolExecutor(len(paths)) as threads:
        http2 = list(threads.map(lambda path: over_http2(host, int(port), path), paths))

    async def all_over_http3() -> list[Arrivals]:
        return await asyncio.gather(*(over_http3(host, int(port), path) for path in paths))

    found = {"2": http2, "3": asyncio.run(all_over_http3())}
    named = {
        version: dict(zip(paths, map(asdict, arrivals), strict=True))
        for version, arrivals in found.items()
    }
    print(json.dumps(named))


if __name__ == "__main__":
    main()
