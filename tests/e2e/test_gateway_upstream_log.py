"""What `pronghorn run` tells its operator of upstreams that fail: the reason of each, in few lines."""

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
LEFT_OUT = re.compile(r"(\d+) more (?:failures )?were left out")


@pytest.fixture
def proxied(start, gateway):
    """Starts the gateway with an upstream `app` of these servers."""

    def run(*servers: str, more: str = ""):
        addresses = ", ".join(f'"{server}"' for server in servers)
        upstreams = f"[upstreams.app]\nservers = [{addresses}]\n{more}\n"
        gateway.write(SITE + '[[sites.routes]]\nproxy = "app"\n' + upstreams, server='state_dir = "state"')
        return start(gateway.command())

    return run


@pytest.fixture
def failures(gateway):
    """How often requests failed for which reason, as metrics say; those for which none did are left out."""

    def read() -> dict[str, int]:
        name = 'pronghorn_upstream_failures_total{reason="'
        found = metrics(gateway.folder / "state" / "admin.sock").items()
        return {key.removeprefix(name).removesuffix('"}'): int(n) for key, n in found if key.startswith(name) and n}

    return read


@contextmanager
def sockets(answer: Callable[[socket.socket], None], over: threading.Event | None = None) -> Iterator[str]:
    """The address, without scheme, of a server that does `answer` with each connection; `over` is set at the end."""
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
            # Otherwise it may overtake the head, and there is no response that breaks off.
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
"""It closes each connection without an answer."""


def told(server, address: str, reason: str, then: str = "answered 502") -> None:
    """Waits for the line of a request for `PATH`, and finds no query in any."""
    asked = re.escape(f"warning: upstream app: {address}: GET 127.0.0.1/a/b?…: ")
    server.wait_for_lines(f"^{asked}{reason}; {then}$")
    # The access log, whose lines begin with the time, is another matter.
    assert not any("secret" in line for line in server.lines if line.startswith(("warning", "upstream")))


def test_nobody_who_listens(proxied, failures, protocol_fetcher):
    address = refusing_address()
    server = proxied(f"http://{address}")
    assert protocol_fetcher.fetch(server.origin + PATH).status == 502
    told(server, f"http://{address}", rf"cannot connect to {address}: Connection refused \(os error 111\)")
    assert failures() == {"connect": 1}


def test_unix_socket_that_is_not_there(proxied, failures, protocol_fetcher):
    server = proxied("unix:/nowhere/app.sock")
    assert protocol_fetcher.fetch(server.origin + PATH).status == 502
    reason = r"cannot connect to unix:/nowhere/app.sock: No such file or directory \(os error 2\)"
    told(server, "unix:/nowhere/app.sock", reason)
    assert failures() == {"connect": 1}


def test_name_that_there_is_not(proxied, failures, protocol_fetcher):
    # No label of a name is so long: no name server is asked.
    name = f"{'a' * 64}.test"
    server = proxied(f"http://{name}")
    assert protocol_fetcher.fetch(server.origin + PATH).status == 502
    told(server, f"http://{name}", f"cannot look up {name}: .+")
    assert failures() == {"lookup": 1}


def test_nginx_without_tls_and_without_an_answer(proxied, gateway, failures, protocol_fetcher):
    with nginx(gateway.folder, NGINX) as address:
        server = proxied(f"https://{address}")
        assert protocol_fetcher.fetch(server.origin + PATH).status == 502
        told(server, f"https://{address}", f"handshake with {address} failed: .+")
        assert failures() == {"handshake": 1}
        server.terminate()
        assert server.wait() == 0, server.lines
        server = proxied(f"http://{address}")
        assert protocol_fetcher.fetch(server.origin + PATH).status == 502
        reason = "the connection ended before the exchange: connection closed before message completed"
        told(server, f"http://{address}", reason)
        assert failures() == {"closed": 1}


@pytest.mark.parametrize("protocol", ["auto", "http3"])
def test_certificate_that_nobody_trusts(proxied, start_serve, failures, protocol_fetcher, protocol):
    behind = start_serve().origin
    server = proxied(behind, more=f'protocol = "{protocol}"')
    assert protocol_fetcher.fetch(server.origin + PATH).status == 502
    told(server, behind, f"handshake with {behind.removeprefix('https://')} failed: .*(?i:certificate|issuer).*")
    assert failures() == {"handshake": 1}


def test_server_of_another_protocol(proxied, failures, up, protocol_fetcher):
    server = proxied(up.address, more='protocol = "http2"')
    assert protocol_fetcher.fetch(server.origin + PATH).status == 502
    told(server, up.address, "the connection ended before the exchange: .+")
    assert failures() == {"closed": 1}


def test_server_that_says_who_may(start, gateway, failures, protocol_fetcher):
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
        line = "^warning: upstream forward-auth: http://{}: GET 127.0.0.1/{}/a\\?…: {}; answered 502$"
        refused = rf"cannot connect to {dead}: Connection refused \(os error 111\)"
        server.wait_for_lines(line.format(dead, 0, refused))
        server.wait_for_lines(line.format(silent, 1, r"no answer in time \(timeout = 200ms\)"))
        assert failures() == {"connect": 1, "head_timeout": 1}


BAD = {
    "no HTTP": (b"220 mail.example.org ESMTP\r\n", "the exchange failed: .+", "malformed"),
    "unasked": (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        r"the exchange failed: the server went on in another protocol unasked \(101\)",
        "malformed",
    ),
    "half a head": (OK + b"x-half: ", "the connection ended before the exchange: .+", "closed"),
}


@pytest.mark.parametrize(("answer", "reason", "counted"), BAD.values(), ids=BAD.keys())
def test_answer_that_is_none(proxied, failures, protocol_fetcher, answer, reason, counted):
    with sockets(after_head(answer)) as address:
        server = proxied(f"http://{address}")
        assert protocol_fetcher.fetch(server.origin + PATH).status == 502
        told(server, f"http://{address}", reason)
        assert failures() == {counted: 1}


def test_no_answer_in_time(proxied, failures, protocol_fetcher):
    over = threading.Event()
    with sockets(after_head(b"", hold=over), over) as address:
        server = proxied(f"http://{address}", more='head_timeout = "200ms"')
        assert protocol_fetcher.fetch(server.origin + PATH).status == 504
        told(server, f"http://{address}", r"no response in time \(head_timeout = 200ms\)", "answered 504")
        assert failures() == {"head_timeout": 1}


def test_no_connection_in_time(proxied, failures, protocol_fetcher):
    # The system takes the connection, and nobody begins with TLS on it.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"https://127.0.0.1:{silent.getsockname()[1]}"
        server = proxied(address, more='connect_timeout = "200ms"')
        assert protocol_fetcher.fetch(server.origin + PATH).status == 504
        told(server, address, r"no connection in time \(connect_timeout = 200ms\)", "answered 504")
        assert failures() == {"connect_timeout": 1}


BUSY = {
    "connections": (
        'connections = 1\nconnect_timeout = "200ms"',
        r"{address}: GET 127.0.0.1/a/b\?…: no free connection in time \(connect_timeout = 200ms\)",
        {"queue_timeout": 1},
    ),
    "requests": ("requests = 1", r"GET 127.0.0.1/a/b\?…: each server has as many requests open as it may", {}),
}


@pytest.mark.parametrize(("limit", "reason", "counted"), BUSY.values(), ids=BUSY.keys())
def test_server_that_is_busy(proxied, failures, protocol_fetcher, limit, reason, counted):
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
            server.wait_for_lines(f"^warning: upstream app: {reason.format(address=up.address)}; answered 503$")
            assert failures() == counted
        finally:
            over.set()
            first.join()


BROKEN_OFF = {
    "length": (after_head(OK + b"content-length: 1000\r\n\r\nhalf"), "the connection ended before the exchange: .+"),
    "reset": (
        after_head(OK + b"content-length: 1000\r\n\r\nhalf", reset=True),
        r"the connection ended before the exchange: .*Connection reset by peer \(os error 104\)",
    ),
    "chunk": (after_head(OK + b"transfer-encoding: chunked\r\n\r\nxyz\r\n"), "the .*: .+"),
}


@pytest.mark.parametrize(("answer", "reason"), BROKEN_OFF.values(), ids=BROKEN_OFF.keys())
def test_response_that_breaks_off(proxied, failures, fetcher, answer, reason):
    with sockets(answer) as address:
        server = proxied(f"http://{address}")
        with suppress(Exception):
            fetcher.fetch(server.origin + PATH)
        told(server, f"http://{address}", reason, "the response breaks off")
        assert sum(failures().values()) == 1


def test_content_that_stops(proxied, failures, protocol_fetcher):
    over = threading.Event()
    with sockets(after_head(OK + b"content-length: 1000\r\n\r\nhalf", hold=over), over) as address:
        server = proxied(f"http://{address}", more='body_timeout = "200ms"')
        with suppress(Exception):
            protocol_fetcher.fetch(server.origin + PATH)
        reason = r"no more of the response's content in time \(body_timeout = 200ms\)"
        told(server, f"http://{address}", reason, "the response breaks off")
        assert failures() == {"body_timeout": 1}


def test_request_that_goes_to_another_server(proxied, failures, up, protocol_fetcher):
    address = f"http://{refusing_address()}"
    server = proxied(address, up.address, more='policy = "first"')
    assert protocol_fetcher.fetch(server.origin + PATH).status == 200
    told(server, address, "cannot connect to .+", "it is sent to another server")
    assert failures() == {"connect": 1}


def test_upstream_of_which_no_server_is_up(proxied, protocol_fetcher):
    addresses = [f"http://{refusing_address()}" for _ in range(2)]
    server = proxied(*addresses, more='health = { failures = 1, out = "1h", out_max = "1h" }')
    statuses = [protocol_fetcher.fetch(server.origin + PATH).status for _ in range(2)]
    assert statuses == [502, 503]
    told(server, addresses[0], "cannot connect to .+", "it is sent to another server")
    told(server, addresses[1], "cannot connect to .+")
    server.wait_for_lines(r"^warning: upstream app: GET 127.0.0.1/a/b\?…: no server is up; answered 503$")
    # Why comes before what became of it.
    (left_alone,) = (at for at, line in enumerate(server.lines) if f"{addresses[0]} is left alone" in line)
    assert any("cannot connect" in line for line in server.lines[:left_alone])


def test_check_that_fails(proxied, up):
    up.routes["/health"] = lambda handler, _: handler.reply(500, b"")
    server = proxied(up.address, more='check = { path = "/health", every = "100ms", failures = 2 }')
    server.wait_for_lines(f"^warning: upstream app: {up.address} is down: its checks failed$")
    server.wait_for_lines(f"^warning: upstream app: {up.address}: check of /health: answered 500$")
    eventually("more checks", lambda: up.requests.count(("GET", "/health")) > 5)
    assert sum("check of" in line for line in server.lines) == 1


def test_upgrade_that_fails(proxied, ca):
    address = refusing_address()
    server = proxied(f"http://{address}")
    context = ssl.create_default_context(cafile=str(ca))
    with pytest.raises(InvalidStatus) as refused:
        connect(server.origin.replace("https", "wss") + PATH, ssl=context, proxy=None)
    assert refused.value.response.status_code == 502
    told(server, f"http://{address}", "cannot connect to .+")


@pytest.mark.parametrize("layers", ["", 'layers = ["compress"]\n'], ids=["alone", "layers"])
def test_content_that_its_client_breaks_off_is_no_failure_of_a_server(start, gateway, failures, ca, layers):
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
            head = f"POST /closed HTTP/1.1\r\nhost: {client.authority}\r\ncontent-length: 10\r\n\r\n"
            client.socket.sendall(f"{head}hello".encode())
            assert reads.wait(60)
        reads.clear()
        with RawH3(server.origin, ca) as h3:
            h3.open()
            stream = h3.request(h3.get("/lost", method="POST"), fin=False)
            h3.write(stream, data(b"hello"))
            h3.wait("the server has it", reads.is_set)
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

        entries = {line["target"]: line for line in eventually("a line each", lines)}

    def told(path: str) -> tuple[str | None, str | None]:
        return entries[path].get("upstream"), entries[path].get("upstream_error")

    assert told("/good") == (up.address, None)
    assert told("/again") == (up.address, None)
    assert told("/own") == (None, None)
    reason = f"cannot connect to {dead.removeprefix('http://')}: Connection refused (os error 111)"
    assert (told("/dead"), entries["/dead"]["status"]) == ((dead, reason), 502)
    assert told("/broken")[0] == f"http://{liar}"
    assert "the connection ended before the exchange" in told("/broken")[1]


def test_failures_without_end_are_few_lines_that_count_all(proxied, failures, ca):
    server = proxied(f"http://{refusing_address()}")
    count = 60
    with RawH1(server.origin, ca) as client:
        client.socket.sendall(f"GET / HTTP/1.1\r\nhost: {client.authority}\r\n\r\n".encode() * count)
        assert [client.receive("GET").status for _ in range(count)] == [502] * count

    def counted() -> int:
        lines = [line for line in server.lines if line.startswith("warning: upstream app: ")]
        reasons = sum("cannot connect" in line for line in lines)
        return reasons + sum(int(found[1]) for line in lines if (found := LEFT_OUT.search(line)))

    eventually("all that was left out is told", lambda: counted() == count)
    assert failures() == {"connect": count}
    lines = [line for line in server.lines if line.startswith("warning: upstream app: ")]
    assert any(LEFT_OUT.search(line) for line in lines[10:]), lines
    assert not any(LEFT_OUT.search(line) for line in lines[:10]), lines


def test_what_a_client_asks_for_ends_no_line(proxied, fetcher):
    server = proxied(f"http://{refusing_address()}")
    assert fetcher.fetch(server.origin + "/%0d%0awarning:%1b[31m" + "x" * 2_000).status == 502
    (found,) = server.wait_for_lines("^warning: upstream app: .+cannot connect.+; answered 502$")
    assert "%0d%0awarning:%1b" in found[0].lower() or "\\r" in found[0]
    assert len(found[0]) < 1_500
    assert "\x1b" not in found[0]
