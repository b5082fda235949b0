"""A proxy in front of Pebble: forwards requests, and answers some like an authority with rate
limits.
"""

from __future__ import annotations

import base64
import http.client
import http.server
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .pebble import API_PORT, Pebble
from .serving import serving

PROXY_PORT = 14443
"""Address beside Pebble's own."""
PROBLEM = ("content-type", "application/problem+json")


@dataclass(frozen=True)
class Answer:
    """A response of the proxy itself."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


class AuthorityProxy(http.server.ThreadingHTTPServer):
    """Calls `answer` with each method and path; without a response from it, the request goes to
    Pebble.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, pebble: Pebble):
        super().__init__((pebble.address, PROXY_PORT), Handler)
        self.pebble = pebble
        self.requests: list[tuple[float, str, str]] = []
        """Time of each request, in seconds of the monotonic clock, with its method and path."""
        self.contents: list[tuple[str, object]] = []
        """Paths of the requests with content, in order."""
        self.answer: Callable[[str, str], Answer | None] = lambda method, path: None
        self.change: Callable[[str, Answer], Answer] = lambda path, answer: answer
        """Returns what the client gets in place of Pebble's response."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pebble.identity.cert, pebble.identity.key)
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        pebble.directory = f"https://{pebble.address}:{PROXY_PORT}/dir"

    def asked(self, path: str) -> list[float]:
        """Returns the times of requests below this path."""
        return [when for when, _, other in self.requests if other.startswith(path)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: AuthorityProxy

    def pass_on(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.requests.append((time.monotonic(), self.command, self.path))
        if signed := json.loads(content or b"{}").get("payload"):
            self.server.contents.append(
                (self.path, json.loads(base64.urlsafe_b64decode(signed + "==")))
            )
        answer = self.server.answer(self.command, self.path)
        if answer is None:
            answer = self.server.change(self.path, self.ask_pebble(content))
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def ask_pebble(self, content: bytes) -> Answer:
        pebble = self.server.pebble
        context = ssl.create_default_context(cafile=pebble.identity.ca)
        connection = http.client.HTTPSConnection(
            pebble.address, API_PORT, context=context, timeout=60
        )
        # Includes `host`, from which Pebble makes the URLs that it hands out.
        connection.request(self.command, self.path, content or None, dict(self.headers))
        response = connection.getresponse()
        body = response.read()
        connection.close()
        own = {"content-length", "connection", "transfer-encoding", "date"}
        kept = [(name, value) for name, value in response.getheaders() if name.lower() not in own]
        return Answer(response.status, kept, body)

    do_GET = do_HEAD = do_POST = pass_on

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def proxied(pebble: Pebble) -> Iterator[AuthorityProxy]:
    """Runs the proxy, which the settings of `pebble` use from now on."""
    proxy = AuthorityProxy(pebble)
    with serving(proxy):
        yield proxy
