"""Servers on independent libraries that count requests, and stall when told to: one for each
protocol.
"""

from __future__ import annotations

import asyncio
import http.server
import ssl
import threading
import time
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
from aioquic.asyncio import serve
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated
from hyperframe.frame import GoAwayFrame

from .certificates import Identity
from .waiting import DEADLINE_SECONDS

ANSWER = b"a small answer\n"


@dataclass(frozen=True)
class Seen:
    """A received request."""

    method: str
    path: str
    fields: dict[str, str]
    """Names in lower case, without the pseudo-header fields."""
    body: bytes


@dataclass
class Counts:
    """Counters of a server. Guarded by its one thread, or the lock."""

    requests: int = 0
    body_bytes: int = 0
    connections: int = 0
    stall_at: int = 0
    """Number of the request before whose response the server stalls once; 0 for none."""
    stall_seconds: float = 0.0
    requests_per_connection: int = 0
    """Number of responses after which an HTTP/2 connection sends GOAWAY; 0 for never."""
    redirects: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By path: the status and the location."""
    seen: list[Seen] = field(default_factory=list)
    first_at: float = 0.0
    """Time when the first request was complete, by the monotonic clock."""
    last_at: float = 0.0
    """Time when the last request was complete."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def on_request(self, seen: Seen) -> tuple[int, dict[str, str]]:
        """Counts a request and returns the response.

        Blocks its caller during the stall: others wait too.
        """
        with self.lock:
            self.requests += 1
            self.body_bytes += len(seen.body)
            self.seen.append(seen)
            if self.requests == self.stall_at:
                time.sleep(self.stall_seconds)
            self.last_at = time.monotonic()
            self.first_at = self.first_at or self.last_at
        status, location = self.redirects.get(seen.path, (200, None))
        fields = {"content-length": str(len(ANSWER))}
        return status, fields | ({"location": location} if location else {})


def seen_in_streams(fields: list[tuple[bytes | str, bytes | str]], body: bytes) -> Seen:
    """Counts a request over HTTP/2 or HTTP/3."""
    text = {as_text(name): as_text(value) for name, value in fields}
    others = {name: value for name, value in text.items() if not name.startswith(":")}
    return Seen(text[":method"], text[":path"], others, body)


def as_text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


class CountingServer:
    """A server in a thread of the test process, until it is left."""

    def __init__(self, protocol: str, identity: Identity, **behaviour):
        self.counts = Counts(**behaviour)
        self.protocol = protocol
        self.identity = identity
        self.port = 0
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._http: http.server.ThreadingHTTPServer | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def origin(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def __enter__(self) -> CountingServer:
        self._thread.start()
        assert self._ready.wait(DEADLINE_SECONDS), "the server did not start"
        return self

    def __exit__(self, *_exception) -> None:
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
        else:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_SECONDS)

    def _run(self) -> None:
        if self.protocol == "1.1":
            self._http = http1_server(self.counts, self._tls("http/1.1"))
            self.port = self._http.server_address[1]
            self._ready.set()
            self._http.serve_forever(poll_interval=0.05)
            return
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        start = self._start_http2() if self.protocol == "2" else self._start_http3()
        self.port = self._loop.run_until_complete(start)
        self._ready.set()
        self._loop.run_forever()

    def _tls(self, alpn: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.identity.cert, self.identity.key)
        context.set_alpn_protocols([alpn])
        return context

    async def _start_http2(self) -> int:
        server = await asyncio.start_server(
            lambda reader, writer: http2_connection(self.counts, reader, writer),
            "127.0.0.1",
            0,
            ssl=self._tls("h2"),
        )
        return server.sockets[0].getsockname()[1]

    async def _start_http3(self) -> int:
        configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
        configuration.load_cert_chain(self.identity.cert, self.identity.key)

        def protocol(*arguments, **options) -> Http3Connection:
            connection = Http3Connection(*arguments, **options)
            connection.counts = self.counts
            return connection

        server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=protocol)
        return server._transport.get_extra_info("sockname")[1]


def http1_server(counts: Counts, tls: ssl.SSLContext) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            self.request.do_handshake()
            super().setup()
            with counts.lock:
                counts.connections += 1

        def answer(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            fields = {name.lower(): value for name, value in self.headers.items()}
            status, answer = counts.on_request(
                Seen(self.command, self.path, fields, self.rfile.read(size))
            )
            lines = [
                f"HTTP/1.1 {status} Answer",
                *(f"{name}: {value}" for name, value in answer.items()),
            ]
            content = b"" if self.command == "HEAD" else ANSWER
            self.wfile.write("\r\n".join([*lines, "", ""]).encode() + content)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer

        def log_message(self, *_arguments) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_arguments) -> None:
            """Ignores errors of clients that disconnect."""

    server = Server(("127.0.0.1", 0), Handler)
    # The handshake runs in the connection's own thread.
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server


async def http2_connection(
    counts: Counts, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    counts.connections += 1
    answered = 0
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    connection.initiate_connection()
    requests: dict[int, tuple[list, bytearray]] = {}
    try:
        writer.write(connection.data_to_send())
        while data := await reader.read(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    requests[event.stream_id] = (event.headers, bytearray())
                elif isinstance(event, h2.events.DataReceived):
                    requests[event.stream_id][1].extend(event.data)
                    connection.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
                elif isinstance(event, h2.events.StreamEnded):
                    if (
                        counts.requests_per_connection
                        and answered >= counts.requests_per_connection
                    ):
                        continue  # It arrived after the last stream in GOAWAY.
                    fields, body = requests.pop(event.stream_id)
                    seen = seen_in_streams(fields, bytes(body))
                    status, answer = counts.on_request(seen)
                    answered += 1
                    connection.send_headers(
                        event.stream_id, [(":status", str(status)), *answer.items()]
                    )
                    content = b"" if seen.method == "HEAD" else ANSWER
                    connection.send_data(event.stream_id, content, end_stream=True)
                    if answered == counts.requests_per_connection:
                        # The library would treat its own GOAWAY as the end of all responses.
                        writer.write(connection.data_to_send())
                        writer.write(GoAwayFrame(0, last_stream_id=event.stream_id).serialize())
            writer.write(connection.data_to_send())
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass  # The client has disconnected.
    finally:
        writer.close()


class Http3Connection(QuicConnectionProtocol):
    """An HTTP/3 connection with aioquic."""

    counts: Counts

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http: H3Connection | None = None
        self.requests: dict[int, tuple[list, bytearray]] = {}

    def quic_event_received(self, event) -> None:
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
            self.counts.connections += 1
        if self.http is None:
            return
        for part in self.http.handle_event(event):
            if isinstance(part, HeadersReceived):
                self.requests[part.stream_id] = (part.headers, bytearray())
            elif isinstance(part, DataReceived):
                self.requests[part.stream_id][1].extend(part.data)
            if isinstance(part, HeadersReceived | DataReceived) and part.stream_ended:
                fields, body = self.requests.pop(part.stream_id)
                seen = seen_in_streams(fields, bytes(body))
                status, answer = self.counts.on_request(seen)
                head = [(b":status", str(status).encode())]
                head += [(name.encode(), value.encode()) for name, value in answer.items()]
                self.http.send_headers(part.stream_id, head)
                self.http.send_data(
                    part.stream_id, b"" if seen.method == "HEAD" else ANSWER, end_stream=True
                )
                self.transmit()
