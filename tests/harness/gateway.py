"""`pronghorn run` with the test's own configuration, and upstream servers for it."""

from __future__ import annotations

import http.server
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .certificates import Identity
from .server import pronghorn
from .serving import serving

SITE = """
[[sites]]
hosts = ["localhost", "127.0.0.1"]
{tls}
"""
"""A site to which tests add routes."""

EVERY_HOST = """
[[sites]]
hosts = ["*"]
{tls}
"""
"""A site for every host."""


class Gateway:
    """The folder of a configuration, and the command that serves it."""

    def __init__(self, folder: Path, identity: Identity):
        self.folder = folder
        self.identity = identity
        self.file = folder / "pronghorn.toml"

    @property
    def tls(self) -> str:
        """Returns the line of a site with the test's certificate."""
        return f'tls = {{ cert = "{self.identity.cert}", key = "{self.identity.key}" }}'

    def write(
        self,
        sites: str,
        *,
        server: str = "",
        listen: tuple[str, ...] = ("127.0.0.1:0",),
        workers: int = 1,
    ) -> Path:
        """Writes a configuration, with the certificate's line in place of `{tls}`."""
        addresses = ", ".join(f'"{address}"' for address in listen)
        head = f"[server]\nlisten = [{addresses}]\nworkers = {workers}\n{server}\n"
        self.file.write_text(head + sites.replace("{tls}", self.tls))
        return self.file

    def command(self, *flags: str) -> list[str | Path]:
        return [pronghorn(), "run", "-c", self.file, *flags]


class Upstream(http.server.ThreadingHTTPServer):
    """Responds with the received request as JSON: `seen` of a response. Also `/status/N`, and paths
    that tests add.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, name: str = "up", address: tuple[str, int] = ("127.0.0.1", 0)):
        super().__init__(address, Handler)
        self.name = name
        self.requests: list[tuple[str, str]] = []
        self.routes: dict[str, Callable[[Handler, bytes], None]] = {}

    @property
    def address(self) -> str:
        return f"http://{self.server_address[0]}:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream
    # With head and content in two segments, Nagle's algorithm and delayed acknowledgements would
    # add latency.
    disable_nagle_algorithm = True

    def answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        content = (
            self.read_chunks()
            if self.headers.get("transfer-encoding") == "chunked"
            else self.rfile.read(length)
        )
        self.server.requests.append((self.command, self.path))
        route = self.server.routes.get(self.path)
        if route is not None:
            return route(self, content)
        status = (
            int(self.path.removeprefix("/status/")) if self.path.startswith("/status/") else 200
        )
        seen = {
            "server": self.server.name,
            "method": self.command,
            "path": self.path,
            "headers": [[name.lower(), value] for name, value in self.headers.items()],
            "content": len(content),
        }
        return self.reply(status, json.dumps(seen).encode(), [("content-type", "application/json")])

    def reply(self, status: int, body: bytes, headers=()) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        has_content = status not in (204, 304)
        if has_content:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if has_content and self.command != "HEAD":
            self.wfile.write(body)

    def read_chunks(self) -> bytes:
        content = bytearray()
        while size := int(self.rfile.readline().split(b";")[0], 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return bytes(content)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = answer

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def upstream(name: str = "up", address: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[Upstream]:
    server = Upstream(name, address)
    with serving(server):
        yield server


def seen(response) -> dict:
    """Returns the request that an `Upstream` received, with the fields as a dictionary."""
    asked = json.loads(response.body)
    asked["headers"] = dict(asked["headers"])
    return asked
