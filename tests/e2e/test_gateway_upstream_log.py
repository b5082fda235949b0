"""Log lines for failing upstreams: the reason of each failure, in few lines."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from harness.addresses import refusing_address
from harness.admin import metrics
from harness.clients.raw_h1 import RawH1
from harness.clients.raw_h3 import RawH3, data
from harness.foreign import nginx
from harness.gateway import SITE, upstream
from harness.serving import listening, read_head, wait_until_read
from harness.waiting import eventually

OK = b"HTTP/1.1 200 OK\r\n"
PATH = "/a/b?token=secret"
LEFT_OUT = re.compile(r"(\d+) more (?:failures )?suppressed")


@pytest.fixture
def proxied(start, gateway):
    """Starts the gateway with an upstream `app` of these servers."""

    def run(*servers: str, more: str = ""):
        addresses = ", ".join(f'"{server}"' for server in servers)
        upstreams = f"[upstreams.app]\nservers = [{addresses}]\n{more}\n"
        gateway.write(
            SITE + '[[sites.routes]]\nproxy = "app"\n' + upstreams, server='state_dir = "state"'
        )
        return start(gateway.command())

    return run


@pytest.fixture
def failures(gateway):
    """Returns the nonzero failure counters of the metrics, by reason."""

    def read() -> dict[str, int]:
        name = 'pronghorn_upstream_failures_total{reason="'
        found = metrics(gateway.folder / "state" / "admin.sock").items()
        return {
            key.removeprefix(name).removesuffix('"}'): int(n)
            for key, n in found
            if key.startswith(name) and n
        }

    return read


@contextmanager
def sockets(
    answer: Callable[[socket.socket], None], over: threading.Event | None = None
) -> Iterator[str]:
    """Yields the address, without scheme, of a server that runs `answer` for each connection;
    `over` is set at the end.
    """
    with listening(answer) as address:
        try:
            yield address
        finally:
            if over is not None:
                over.set()


def after_head(answer: bytes, *, reset: bool = False, hold: threading.Event | None = None):
    def run(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(answer)
        if hold is not None:
            hold.wait(60)
        if reset:
            # Otherwise the reset may overtake the head, and there would be no truncated response.
            wait_until_read(connection)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    return run


NGINX = """
access_log off;
server {{
    listen {address};
    location / {{ return 444; }}
}}
"""
"""nginx closes each connection without a response."""


def told(server, address: str, reason: str, then: str = "answered 502") -> None:
    """Waits for the log line of a request for `PATH`, and checks that no line has a query."""
    asked = re.escape(f"warning: upstream app: {address}: GET 127.0.0.1/a/b?…: ")
    server.wait_for_lines(f"^{asked}{reason}; {then}$")
    # The access log, whose lines begin with the time, may have one.
    assert not any(
        "secret" in line for line in server.lines if line.startswith(("warning", "upstream"))
    )


def test_refused_connection_is_logged(proxied, failures, protocol_fetcher):
    address = refusing_address()
    server = proxied(f"http://{address}")
    assert protocol_fetcher.fetch(server.origin + PATH).status == 502
    told(
        server,
        f"http://{address}",
        rf"cannot connect to {address}: Connection refused \(os error 111\)",
    )
    assert failures() == {"connect": 1}


def test_missing_unix_socket_is_logged(proxied, failures, protocol_fetcher):
    server = proxied("unix:/nowhere/app.sock")
    assert protocol_fetcher.fetch(server.origin + PATH).status == 502
    reason = r"cannot connect to unix:/nowhere/app.sock: No such file or directory \(os error 2\)"
    told(server, "unix:/nowhere/app.sock", reason)
    assert failures() == {"connect": 1}


def test_unknown_host_name_is_logged(proxied, failures, protocol_fetcher):
    # A label of a name has at most 63 bytes, so no name server is asked.
    name = f"{'a' * 64}.test"
    server = proxied(f"http://{name}")
    assert protocol_fetcher.fetch(server.origin + PATH).status == 502
    told(server, f"http://{name}", f"cannot look up {name}: .+")
    assert failures() == {"lookup": 1}


def test_nginx_without_tls_or_without_a_response_is_logged(
    proxied, gateway, failures, protocol_fetcher
):
    with nginx(gateway.folder, NGINX) as address:
        server = proxied(f"https://{address}")
        assert protocol_fetcher.fetch(server.origin + PATH).status == 502
        told(server, f"https://{address}", f"handshake with {address} failed: .+")
        assert failures() == {"handshake": 1}
        server.terminate()
        assert server.wait() == 0, server.lines
        server = proxied(f"http://{address}")
        assert protocol_fetcher.fetch(server.origin + PATH).status == 502
        reason = "connection closed before the exchange ended: incomplete response"
        told(server, f"http://{address}", reason)
        assert failures() == {"closed": 1}


@pytest.mark.parametrize("protocol", ["auto", "http3"])
def test_untrusted_certificate_is_logged(
    proxied, start_serve, failures, protocol_fetcher, protocol
):
    behind = start_serve().origin
    server = proxied(behind, more=f'protocol = "{protocol}"')
    assert protocol_fetcher.fetch(server.origin + PATH).status == 502
    told(
        server,
        behind,
        f"handshake with {behind.removeprefix('https://')} failed: .*(?i:certificate|issuer).*",
    )
    assert failures() == {"handshake": 1}


def test_server_of_another_protocol_is_logged(proxied, failures, up, protocol_fetcher):
    server = proxied(up.address, more='protocol = "http2"')
    assert protocol_fetcher.fetch(server.origin + PATH).status == 502
    told(server, up.address, "connection closed before the exchange ended: .+")
    assert failures() == {"closed": 1}


def test_failing_auth_server_is_logged(start, gateway, failures, protocol_fetcher):
    dead = refusing_address()
    over = threading.Event()
    with sockets(after_head(b"", hold=over), over) as silent:
        layers = [(dead, ""), (silent, ', timeout = "200ms"')]
        routes = "".join(
            f'[[sites.routes]]\nmatch = "/{at}/*"\nstrip_prefix = true\nrespond = "x"\n'
            + f'layers = [{{ name = "forward-auth", address = "http://{address}"{more} }}]\n'
            for at, (address, more) in enumerate(layers)
        )
        gateway.write(SITE + routes, server='state_dir = "state"')
        server = start(gateway.command())
        for at in (0, 1):
            assert protocol_fetcher.fetch(f"{server.origin}/{at}/a?token=secret").status == 502
        line = (
            "^warning: upstream forward-auth: http://{}: GET 127.0.0.1/{}/a\\?…: {}; answered 502$"
        )
        refused = rf"cannot connect to {dead}: Connection refused \(os error 111\)"
        server.wait_for_lines(line.format(dead, 0, refused))
        server.wait_for_lines(line.format(silent, 1, r"no response in time \(timeout = 200ms\)"))
        assert failures() == {"connect": 1, "head_timeout": 1}


BAD = {
    "no HTTP": (b"220 mail.example.org ESMTP\r\n", "the exchange failed: .+", "malformed"),
    "unasked": (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        r"the exchange failed: the server switched protocols without an upgrade request \(101\)",
        "malformed",
    ),
    "half a head": (OK + b"x-half: ", "connection closed before the exchange ended: .+", "closed"),
}


@pytest.mark.parametrize(("answer", "reason", "counted"), BAD.values(), ids=BAD.keys())
def test_malformed_response_is_logged(proxied, failures, protocol_fetcher, answer, reason, counted):
    with sockets(after_head(answer)) as address:
        server = proxied(f"http://{address}")
        assert protocol_fetcher.fetch(server.origin + PATH).status == 502
        told(server, f"http://{address}", reason)
        assert failures() == {counted: 1}


def test_head_timeout_is_logged(proxied, failures, protocol_fetcher):
    over = threading.Event()
    with sockets(after_head(b"", hold=over), over) as address:
        server = proxied(f"http://{address}", more='head_timeout = "200ms"')
        assert protocol_fetcher.fetch(server.origin + PATH).status == 504
        told(
            server,
            f"http://{address}",
            r"no response in time \(head_timeout = 200ms\)",
            "answered 504",
        )
        assert failures() == {"head_timeout": 1}


def test_connect_timeout_is_logged(proxied, failures, protocol_fetcher):
    # The kernel accepts the connection, and no server starts TLS on it.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"https://127.0.0.1:{silent.getsockname()[1]}"
        server = proxied(address, more='connect_timeout = "200ms"')
        assert protocol_fetcher.fetch(server.origin + PATH).status == 504
        told(server, address, r"no connection in time \(connect_timeout = 200ms\)", "answered 504")
        assert failures() == {"connect_timeout": 1}


BUSY = {
    "connections": (
        # Long enough for the first request to connect on a busy machine.
        'connections = 1\nconnect_timeout = "3s"',
        r"{address}: GET 127.0.0.1/a/b\?…: no free connection in time \(connect_timeout = 3s\)",
        {"queue_timeout": 1},
    ),
    "requests": (
        "requests = 1",
        r"GET 127.0.0.1/a/b\?…: all servers are at their limit of open requests",
        {},
    ),
}


@pytest.mark.parametrize(("limit", "reason", "counted"), BUSY.values(), ids=BUSY.keys())
def test_busy_server_is_logged(proxied, failures, protocol_fetcher, limit, reason, counted):
    over, asked = threading.Event(), threading.Event()
    with upstream() as up:

        def hold(handler, _content) -> None:
            asked.set()
            over.wait(60)
            handler.reply(200, b"at last")

        up.routes["/slow"] = hold
        server = proxied(up.address, more=limit)
        first = threading.Thread(target=server.serves, args=(protocol_fetcher, "/slow"))
        first.start()
        try:
            assert asked.wait(30)
            assert protocol_fetcher.fetch(server.origin + PATH).status == 503
            server.wait_for_lines(
                f"^warning: upstream app: {reason.format(address=up.address)}; answered 503$"
            )
            assert failures() == counted
        finally:
            over.set()
            first.join()


BROKEN_OFF = {
    "length": (
        after_head(OK + b"content-length: 1000\r\n\r\nhalf"),
        "connection closed before the exchange ended: .+",
    ),
    "reset": (
        after_head(OK + b"content-length: 1000\r\n\r\nhalf", reset=True),
        r"connection closed before the exchange ended: .*Connection reset by peer \(os error 104\)",
    ),
    "chunk": (after_head(OK + b"transfer-encoding: chunked\r\n\r\nxyz\r\n"), "the .*: .+"),
}


@pytest.mark.parametrize(("answer", "reason"), BROKEN_OFF.values(), ids=BROKEN_OFF.keys())
def test_truncated_response_is_logged(proxied, failures, fetcher, answer, reason):
    with sockets(answer) as address:
        server = proxied(f"http://{address}")
        with suppress(Exception):
            fetcher.fetch(server.origin + PATH)
        told(server, f"http://{address}", reason, "response cut off")
        assert sum(failures().values()) == 1


def test_stalled_content_is_logged(proxied, failures, protocol_fetcher):
    over = threading.Event()
    with sockets(after_head(OK + b"content-length: 1000\r\n\r\nhalf", hold=over), over) as address:
        server = proxied(f"http://{address}", more='body_timeout = "200ms"')
        with suppress(Exception):
            protocol_fetcher.fetch(server.origin + PATH)
        reason = r"no response body data in time \(body_timeout = 200ms\)"
        told(server, f"http://{address}", reason, "response cut off")
        assert failures() == {"body_timeout": 1}


def test_retry_on_another_server_is_logged(proxied, failures, up, protocol_fetcher):
    address = f"http://{refusing_address()}"
    server = proxied(address, up.address, more='policy = "first"')
    assert protocol_fetcher.fetch(server.origin + PATH).status == 200
    told(server, address, "cannot connect to .+", "retried on another server")
    assert failures() == {"connect": 1}


def test_upstream_without_an_available_server_is_logged(proxied, protocol_fetcher):
    addresses = [f"http://{refusing_address()}" for _ in range(2)]
    server = proxied(*addresses, more='health = { failures = 1, out = "1h", out_max = "1h" }')
    statuses = [protocol_fetcher.fetch(server.origin + PATH).status for _ in range(2)]
    assert statuses == [502, 503]
    told(server, addresses[0], "cannot connect to .+", "retried on another server")
    told(server, addresses[1], "cannot connect to .+")
    server.wait_for_lines(
        r"^warning: upstream app: GET 127.0.0.1/a/b\?…: no server is available; answered 503$"
    )
    # The reason precedes the consequence.
    (left_alone,) = (
        at for at, line in enumerate(server.lines) if f"{addresses[0]} ejected" in line
    )
    assert any("cannot connect" in line for line in server.lines[:left_alone])


def test_failed_check_is_logged(proxied, up):
    up.routes["/health"] = lambda handler, _: handler.reply(500, b"")
    server = proxied(up.address, more='check = { path = "/health", every = "100ms", failures = 2 }')
    server.wait_for_lines(f"^warning: upstream app: {up.address} is down: its checks failed$")
    server.wait_for_lines(
        f"^warning: upstream app: {up.address}: health check of /health: unexpected status 500$"
    )
    eventually("more checks", lambda: up.requests.count(("GET", "/health")) > 5)
    assert sum("check of" in line for line in server.lines) == 1


def test_failed_upgrade_is_logged(proxied, ca):
    address = refusing_address()
    server = proxied(f"http://{address}")
    context = ssl.create_default_context(cafile=str(ca))
    with pytest.raises(InvalidStatus) as refused:
        connect(server.origin.replace("https", "wss") + PATH, ssl=context, proxy=None)
    assert refused.value.response.status_code == 502
    told(server, f"http://{address}", "cannot connect to .+")


@pytest.mark.parametrize("layers", ["", 'layers = ["compress"]\n'], ids=["alone", "layers"])
def test_content_aborted_by_the_client_is_not_an_upstream_failure(
    start, gateway, failures, ca, layers
):
    reads = threading.Event()

    def read(connection: socket.socket) -> None:
        while connection.recv(65536):
            reads.set()

    with sockets(read) as address:
        route = f'[[sites.routes]]\nproxy = "http://{address}"\n{layers}'
        gateway.write(SITE + route, server='state_dir = "state"')
        server = start(gateway.command())
        with RawH1(server.origin, ca) as client:
            head = f"POST /chunk HTTP/1.1\r\nhost: {client.authority}\r\ntransfer-encoding: chunked\r\n\r\n"
            client.socket.sendall(f"{head}5\r\nhello\r\nxyz\r\n".encode())
            assert client.receive("POST").status == 400
        reads.clear()
        with RawH1(server.origin, ca) as client:
            head = (
                f"POST /closed HTTP/1.1\r\nhost: {client.authority}\r\ncontent-length: 10\r\n\r\n"
            )
            client.socket.sendall(f"{head}hello".encode())
            assert reads.wait(60)
        reads.clear()
        with RawH3(server.origin, ca) as h3:
            h3.open()
            stream = h3.request(h3.get("/lost", method="POST"), fin=False)
            h3.write(stream, data(b"hello"))
            h3.wait("the server to receive it", reads.is_set)
        for path in ("/chunk", "/closed", "/lost"):
            server.wait_for_lines(f" POST {path} ")
        assert failures() == {}
        assert not [line for line in server.lines if line.startswith("warning")]


@pytest.mark.parametrize("layers", ["", 'layers = ["compress"]\n'], ids=["alone", "layers"])
def test_access_log_has_the_server_and_its_failure(start, gateway, up, fetcher, layers):
    dead = f"http://{refusing_address()}"

    def route(path: str, servers: list[str], more: str = "") -> str:
        proxy = f"proxy = {{ servers = {json.dumps(servers)}, {more} }}"
        return f'[[sites.routes]]\nmatch = "{path}"\n{layers}{proxy}\n'

    with sockets(after_head(OK + b"content-length: 1000\r\n\r\nhalf")) as liar:
        routes = [
            route("/good", [up.address]),
            route("/dead", [dead]),
            route("/again", [dead, up.address], 'policy = "first"'),
            route("/broken", [f"http://{liar}"]),
            '[[sites.routes]]\nrespond = "own"\n',
        ]
        gateway.write(SITE + "".join(routes) + '[log]\naccess = "access.log"\nformat = "json"\n')
        server = start(gateway.command())
        paths = ["/good", "/dead", "/again", "/broken", "/own"]
        for path in paths:
            with suppress(Exception):
                fetcher.fetch(server.origin + path)

        def lines() -> list[dict] | None:
            found = (gateway.folder / "access.log").read_text().splitlines()
            return [json.loads(line) for line in found] if len(found) >= len(paths) else None

        entries = {
            line["target"]: line for line in eventually("a log line for each request", lines)
        }

    def told(path: str) -> tuple[str | None, str | None]:
        return entries[path].get("upstream"), entries[path].get("upstream_error")

    assert told("/good") == (up.address, None)
    assert told("/again") == (up.address, None)
    assert told("/own") == (None, None)
    reason = f"cannot connect to {dead.removeprefix('http://')}: Connection refused (os error 111)"
    assert (told("/dead"), entries["/dead"]["status"]) == ((dead, reason), 502)
    assert told("/broken")[0] == f"http://{liar}"
    assert "connection closed before the exchange ended" in told("/broken")[1]


def test_repeated_failures_are_summarized_in_few_lines(proxied, failures, ca):
    server = proxied(f"http://{refusing_address()}")
    count = 60
    with RawH1(server.origin, ca) as client:
        client.socket.sendall(
            f"GET / HTTP/1.1\r\nhost: {client.authority}\r\n\r\n".encode() * count
        )
        assert [client.receive("GET").status for _ in range(count)] == [502] * count

    def counted() -> int:
        lines = [line for line in server.lines if line.startswith("warning: upstream app: ")]
        reasons = sum("cannot connect" in line for line in lines)
        return reasons + sum(int(found[1]) for line in lines if (found := LEFT_OUT.search(line)))

    eventually("all omitted lines are counted", lambda: counted() == count)
    assert failures() == {"connect": count}
    lines = [line for line in server.lines if line.startswith("warning: upstream app: ")]
    assert any(LEFT_OUT.search(line) for line in lines[10:]), lines
    assert not any(LEFT_OUT.search(line) for line in lines[:10]), lines


def test_target_with_line_breaks_stays_in_one_log_line(proxied, fetcher):
    server = proxied(f"http://{refusing_address()}")
    assert fetcher.fetch(server.origin + "/%0d%0awarning:%1b[31m" + "x" * 2_000).status == 502
    (found,) = server.wait_for_lines("^warning: upstream app: .+cannot connect.+; answered 502$")
    assert "%0d%0awarning:%1b" in found[0].lower() or "\\r" in found[0]
    assert len(found[0]) < 1_500
    assert "\x1b" not in found[0]
