"""Upstream servers on Unix sockets."""

from __future__ import annotations

import os
import socket
import socketserver
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from harness.gateway import SITE, Handler, seen, upstream
from harness.serving import serving
from harness.waiting import eventually

ROUTED = SITE + '[[sites.routes]]\nproxy = "app"\n'


class UnixHandler(Handler):
    # TCP only.
    disable_nagle_algorithm = False

    def address_string(self) -> str:
        return "unix"


class UnixUpstream(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Responds like `Upstream`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path, name: str):
        super().__init__(str(path), UnixHandler)
        self.name = name
        self.requests: list[tuple[str, str]] = []
        self.routes: dict = {}
        self.open: set[socket.socket] = set()

    def process_request(self, request, client_address) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def stop(self) -> None:
        """Stops like a process that exits: its connections end with it."""
        self.shutdown()
        self.server_close_listener()
        for one in list(self.open):
            # Its own thread may have closed it meanwhile.
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def server_close_listener(self) -> None:
        self.socket.close()
        os.unlink(self.server_address)


@contextmanager
def unix_upstream(path: Path, name: str = "up") -> Iterator[UnixUpstream]:
    server = UnixUpstream(path, name)
    with serving(server, server.stop):
        yield server


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yields a folder with a short path: a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="sock") as path:
        yield Path(path)


def app(servers: list[object], more: str = "") -> str:
    addresses = ", ".join(f'"{server}"' for server in servers)
    return f"{ROUTED}\n[upstreams.app]\nservers = [{addresses}]\n{more}\n"


def test_request_over_unix_socket_equals_that_over_tcp(start, gateway, protocol_fetcher, folder):
    path = folder / "app.sock"
    with unix_upstream(path) as unix, upstream() as tcp:
        routes = f'[[sites.routes]]\nmatch = "/tcp/*"\nproxy = "{tcp.address}"\n'
        gateway.write(f'{SITE}{routes}[[sites.routes]]\nproxy = "unix:{path}"\n')
        server = start(gateway.command())
        over_unix = seen(protocol_fetcher.fetch(server.origin + "/a?b=c"))
        over_tcp = seen(protocol_fetcher.fetch(server.origin + "/tcp/"))
        assert over_unix["path"] == "/a?b=c"
        assert over_unix["headers"] == over_tcp["headers"]
        assert over_unix["headers"]["host"] == server.origin.removeprefix("https://")
        assert unix.requests == [("GET", "/a?b=c")]


def test_host_server_over_unix_socket_is_localhost(start, gateway, protocol_fetcher, folder):
    path = folder / "app.sock"
    with unix_upstream(path):
        gateway.write(app([f"unix:{path}"], 'host = "server"'))
        server = start(gateway.command())
        assert seen(protocol_fetcher.fetch(server.origin + "/"))["headers"]["host"] == "localhost"


def test_large_response_arrives_complete(start, gateway, protocol_fetcher, folder):
    content = os.urandom(3 << 20)
    path = folder / "app.sock"
    with unix_upstream(path) as unix:
        unix.routes["/large"] = lambda handler, _: handler.reply(200, content)
        gateway.write(app([f"unix:{path}"]))
        server = start(gateway.command())
        assert protocol_fetcher.fetch(server.origin + "/large").body == content


def test_missing_socket_is_502_and_restarted_server_is_used(
    start, gateway, protocol_fetcher, folder
):
    path = folder / "app.sock"
    gateway.write(app([f"unix:{path}"]))
    server = start(gateway.command())
    assert protocol_fetcher.fetch(server.origin + "/").status == 502
    for name in ("first", "second"):
        with unix_upstream(path, name):
            for _ in range(2):
                assert seen(protocol_fetcher.fetch(server.origin + "/"))["server"] == name
        assert protocol_fetcher.fetch(server.origin + "/").status == 502


def test_failing_socket_is_ejected(start, gateway, protocol_fetcher, folder):
    late, good = folder / "late.sock", folder / "good.sock"
    with unix_upstream(good, "good"):
        health = 'health = { failures = 1, out = "1s", out_max = "1s" }'
        gateway.write(app([f"unix:{late}", f"unix:{good}"], f'policy = "first"\n{health}'))
        server = start(gateway.command())
        assert seen(protocol_fetcher.fetch(server.origin + "/"))["server"] == "good"
        with unix_upstream(late, "late"):

            def is_asked() -> bool:
                return seen(protocol_fetcher.fetch(server.origin + "/"))["server"] == "late"

            eventually("the late server answers", is_asked)


NODE_SERVER = """
const server = require(`node:${process.argv[1]}`).createServer((request, response) => {
  response.end(`${request.httpVersion} ${request.headers.host ?? request.authority} ${request.url}`);
});
const where = process.argv[2] || { host: "127.0.0.1", port: 0 };
server.listen(where, () => console.log(server.address().port ?? "ready"));
"""


@pytest.mark.parametrize("over", ["tcp", "unix"])
@pytest.mark.parametrize(
    ("module", "protocol", "version"), [("http", "auto", "1.1"), ("http2", "http2", "2.0")]
)
def test_node_upstream_works_in_clear_text(
    start, gateway, protocol_fetcher, folder, module, protocol, version, over
):
    path = folder / "node.sock"
    command = ["node", "-e", NODE_SERVER, "--", module, str(path) if over == "unix" else ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as node:
        try:
            port = node.stdout.readline().strip()
            address = f"unix:{path}" if over == "unix" else f"http://127.0.0.1:{port}"
            gateway.write(app([address], f'protocol = "{protocol}"'))
            server = start(gateway.command())
            host = server.origin.removeprefix("https://")
            assert (
                protocol_fetcher.fetch(server.origin + "/a?b").body.decode()
                == f"{version} {host} /a?b"
            )
        finally:
            node.kill()
