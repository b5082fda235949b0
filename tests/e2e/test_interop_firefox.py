"""Firefox over HTTP/2 and HTTP/3: transfers, Alt-Svc, sessions, 421, and its priorities."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterator

import pytest

from conftest import SEED
from harness.admin import UnixConnection, ask
from harness.clients.browser import Browser
from harness.clients.firefox import NAME, common_preferences, firefox_options, protocol_preferences
from harness.pairs import LARGE, SMALL
from harness.server import Server, serve_command
from harness.udp_proxy import Impairment, UdpProxy
from harness.waiting import eventually

PAGE = "<!doctype html><title>page</title><link rel=icon href=data:,>"

FETCH = """(async () => {
  performance.clearResourceTimings();
  const response = await fetch(PATH, { cache: 'no-store' });
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', await response.arrayBuffer()));
  const entry = await new Promise((resolve) => {
    const observer = new PerformanceObserver((list) => resolve(list.getEntries()[0]));
    observer.observe({ type: 'resource', buffered: true });
  });
  const sha256 = [...digest].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  return { status: response.status, protocol: entry.nextHopProtocol, sha256 };
})()"""

NAVIGATION = "performance.getEntriesByType('navigation')[0].nextHopProtocol"


def fetch(firefox: Browser, path: str) -> dict:
    return firefox.evaluate(FETCH.replace("PATH", json.dumps(path)))


@contextlib.contextmanager
def firefox_at(
    port: int, protocol: str | None = None, preferences: dict | None = None
) -> Iterator[Browser]:
    """Yields a Firefox that has loaded the front page.

    Without `protocol` it discovers the protocol itself.
    """
    asked = common_preferences() | (preferences or {})
    if protocol is not None:
        asked |= protocol_preferences(protocol, NAME, port)
    with Browser(firefox_options(asked)) as firefox:
        firefox.visit(f"https://{NAME}:{port}/")
        yield firefox


@pytest.fixture
def serve(start, identity, files, tmp_path) -> Callable[..., Server]:
    """Serves a page and the common files; the counters are printed at the end."""

    def run(*flags: str) -> Server:
        for size in (SMALL, LARGE):
            (tmp_path / f"{size}.bin").write_bytes((files / f"{size}.bin").read_bytes())
        (tmp_path / "index.html").write_text(PAGE)
        return start(serve_command(tmp_path, identity, "--stats", "--grace", "0.5", *flags))

    return run


def counters(server: Server) -> dict[str, int]:
    server.terminate()
    server.wait()
    return server.counters()


def client_ports(server: Server, protocol: str) -> list[int]:
    """Returns the client ports of the requests in the access log: another port is another
    connection.
    """
    lines = (re.search(rf" 127\.0\.0\.1:(\d+) {protocol} ", line) for line in server.lines)
    return [int(line[1]) for line in lines if line]


# Transfers.


@pytest.fixture
def download(files):
    """Downloads files through a port and checks the protocol and the content."""

    def run(port: int, protocol: str, sizes: list[int]) -> None:
        with firefox_at(port, protocol) as firefox:
            assert firefox.evaluate(NAVIGATION) == protocol
            for size in sizes:
                sha256 = hashlib.sha256((files / f"{size}.bin").read_bytes()).hexdigest()
                assert fetch(firefox, f"/{size}.bin") == {
                    "status": 200,
                    "protocol": protocol,
                    "sha256": sha256,
                }

    return run


def test_firefox_transfer(serve, download):
    server = serve()
    for protocol, logged in (("h2", "HTTP/2"), ("h3", "HTTP/3")):
        download(server.port, protocol, [SMALL, LARGE])
        ports = eventually(
            "three lines",
            lambda logged=logged: client_ports(server, logged)[2:] and client_ports(server, logged),
        )
        assert len(set(ports)) == 1


def test_firefox_transfer_with_5_percent_loss(serve, download):
    with UdpProxy(
        serve().port, seed=f"{SEED} firefox loss", impairment=Impairment(loss=0.05)
    ) as proxy:
        download(proxy.port, "h3", [LARGE])
    assert proxy.seen["loss"] > 20


def test_firefox_transfer_across_new_ports(serve, download):
    server = serve("--workers", "2")
    with UdpProxy(server.port, seed=f"{SEED} firefox rebind", rebind_at=[100, 400]) as proxy:
        download(proxy.port, "h3", [LARGE])
    assert proxy.seen["rebind"] == 2
    # On a busy machine three are counted now and then: the server returned to an earlier path and
    # moved again.
    assert counters(server)["quic_migrations"] >= 2


def test_firefox_proves_its_address_after_a_retry(serve, download):
    server = serve("--limit", "open_handshakes=0")
    download(server.port, "h3", [SMALL])
    assert counters(server)["quic_retries_sent"] >= 1


def test_firefox_goes_from_h2_to_h3_by_alt_svc(serve):
    server = serve()
    with firefox_at(server.port) as firefox:
        assert firefox.evaluate(NAVIGATION) == "h2"
        eventually(
            "a response over HTTP/3", lambda: fetch(firefox, f"/{SMALL}.bin")["protocol"] == "h3"
        )

        def navigates_over_h3() -> bool:
            firefox.visit(f"https://{NAME}:{server.port}/")
            return firefox.evaluate(NAVIGATION) == "h3"

        eventually("a document over HTTP/3", navigates_over_h3)


# Sessions.


IDLE_SECONDS = 2
"""Idle timeout, longer than a busy machine delays a packet: after a lost connection Firefox uses TCP."""


def reconnect(server: Server, times: int) -> dict[str, int]:
    """Makes Firefox reconnect at least this often, after idle timeouts; returns the server's
    counters.
    """
    # Three idle timeouts, so that both sides have dropped the connection; there is no signal for
    # it. After half of that Firefox once used TCP on a busy machine.
    wait = f"new Promise((resolve) => setTimeout(resolve, {3000 * IDLE_SECONDS}))"
    idle = {"network.http.http3.idle_timeout": IDLE_SECONDS}
    with firefox_at(server.port, "h3", idle) as firefox:

        def connection() -> int:
            """Returns the client's port of one more request."""
            logged = len(client_ports(server, "HTTP/3"))
            assert fetch(firefox, f"/{SMALL}.bin")["protocol"] == "h3"
            return eventually("a line in the log", lambda: client_ports(server, "HTTP/3")[logged:])[
                0
            ]

        def is_another() -> bool:
            firefox.evaluate(wait)
            connections.append(connection())
            return connections[-1] != connections[-2]

        eventually("the line of the page", lambda: client_ports(server, "HTTP/3"))
        connections = [connection()]

        for _ in range(times):
            eventually("another connection", is_another)
    return counters(server)


def test_firefox_gets_an_answer_to_early_data(serve):
    seen = reconnect(serve(), 2)
    later = seen["quic_connected"] - 1
    assert later >= 2
    assert (seen["quic_resumed"], seen["early_data_accepted"]) == (later, later)
    assert 1 <= seen["requests_early"] <= later


def test_firefox_resumes_without_early_data(serve):
    seen = reconnect(serve("--early-data", "off"), 1)
    later = seen["quic_connected"] - 1
    assert later >= 1
    assert (seen["quic_resumed"], seen["requests_early"]) == (later, 0)


# 421 and priorities.


def test_firefox_retries_a_misdirected_request_over_tcp(start, gateway):
    """A site with HTTP/3 switched off answers 421 on existing connections."""
    site = f'[[sites]]\nhosts = ["{NAME}"]\n{gateway.tls}\n[[sites.routes]]\nrespond = "x"\n'
    gateway.write(
        site + '[log]\naccess = "access.log"\nformat = "json"\n', server='state_dir = "state"'
    )
    server = start(gateway.command())
    with firefox_at(server.port) as firefox:
        eventually("a response over HTTP/3", lambda: fetch(firefox, "/before")["protocol"] == "h3")
        admin = UnixConnection(gateway.folder / "state" / "admin.sock")
        assert ask(admin, "PUT", f"/sites/{NAME}/http3", "false")[0] == 200
        after = fetch(firefox, "/after")
        assert (after["status"], after["protocol"]) == (200, "h2")

    def logged() -> list[tuple[str, int]]:
        lines = map(json.loads, (gateway.folder / "access.log").read_text().splitlines())
        return [(line["protocol"], line["status"]) for line in lines if line["target"] == "/after"]

    assert eventually("two lines", lambda: len(logged()) == 2 and logged()) == [
        ("HTTP/3", 421),
        ("HTTP/2", 200),
    ]


RESOURCES = """
<link rel=stylesheet href=style.css><script src=script.js></script>
<img src=image.png><img fetchpriority=high src=high.png><img fetchpriority=low src=low.png>
"""

PATHS = ["/", "/style.css", "/script.js", "/image.png", "/high.png", "/low.png", "/data"]


def urgency(priority: str | None) -> int:
    """RFC 9218 section 4.1: the default urgency is 3."""
    said = re.search(r"\bu=(\d)", priority or "")
    return int(said[1]) if said else 3


@pytest.mark.parametrize("protocol", ["h2", "h3"])
def test_firefox_says_what_is_urgent(start, gateway, up, protocol):
    asked: dict[str, str | None] = {}

    def answer(handler, _content) -> None:
        asked[handler.path] = handler.headers["priority"]
        handler.reply(200, (PAGE + RESOURCES).encode(), [("content-type", "text/html")])

    up.routes = dict.fromkeys(PATHS, answer)
    gateway.write(
        f'[[sites]]\nhosts = ["{NAME}"]\n{gateway.tls}\n[[sites.routes]]\nproxy = "{up.address}"\n'
    )
    with firefox_at(start(gateway.command()).port, protocol) as firefox:
        assert firefox.evaluate(NAVIGATION) == protocol
        assert fetch(firefox, "/data")["protocol"] == protocol
    assert sorted(asked) == sorted(PATHS)
    urgencies = {path: urgency(priority) for path, priority in asked.items()}
    assert urgencies["/"] == 0
    assert (
        urgencies["/style.css"]
        < urgencies["/data"]
        <= urgencies["/image.png"]
        <= urgencies["/low.png"]
    ), asked
    assert urgencies["/high.png"] < urgencies["/image.png"], asked
    incremental = {path for path, priority in asked.items() if re.search(r"\bi\b", priority or "")}
    assert incremental == {"/", "/image.png", "/high.png", "/low.png"}, asked
