"""Health checks of an upstream's servers, and the gateway's log of servers that are down."""

from __future__ import annotations

import json
import socket
import subprocess

import pytest

from harness.admin import UnixConnection, ask, metrics
from harness.gateway import SITE, seen, upstream
from harness.server import pronghorn
from harness.waiting import eventually

ROUTED = SITE + '[[sites.routes]]\nproxy = "app"\n'


@pytest.fixture
def admin(gateway):
    return lambda: UnixConnection(gateway.folder / "state" / "admin.sock")


@pytest.fixture
def run(start, gateway):
    """Starts the gateway with these servers, on several workers."""

    def write_and_start(servers, more, workers=2):
        write(gateway, servers, more, workers)
        return start(gateway.command())

    return write_and_start


def write(gateway, servers, more, workers=2):
    addresses = ", ".join(f'"{server}"' for server in servers)
    upstreams = f"\n[upstreams.app]\nservers = [{addresses}]\n{more}\n"
    gateway.write(ROUTED + upstreams, server='state_dir = "state"', workers=workers)


def reload(gateway):
    done = subprocess.run(
        [pronghorn(), "reload", "-c", gateway.file], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr


def states(connection) -> list[str]:
    status, answer = ask(connection, "GET", "/status")
    assert status == 200
    return [server["state"] for server in answer["upstream_servers"]]


def checks(server, path="/health") -> int:
    return server.requests.count(("GET", path))


def answer(status):
    return lambda handler, _: handler.reply(status, b"as told")


def test_server_with_failing_checks_gets_no_requests_until_they_succeed(
    run, gateway, admin, protocol_fetcher
):
    with upstream("a") as a, upstream("b") as b:
        a.routes["/health"] = answer(500)
        b.routes["/health"] = answer(200)
        check = 'check = { path = "/health", every = "100ms", failures = 2, successes = 2 }'
        server = run([a.address, b.address], f'policy = "first"\n{check}')
        server.wait_for_lines(f"^warning: upstream app: {a.address} is down: its checks failed$")
        assert states(admin()) == ["down", "up"]
        up = 'pronghorn_upstream_server_up{upstream="app",server="%s"}'
        found = metrics(gateway.folder / "state" / "admin.sock")
        assert (found[up % a.address], found[up % b.address]) == (0, 1)
        for _ in range(4):
            assert seen(protocol_fetcher.fetch(server.origin + "/"))["server"] == "b"
        b.routes["/health"] = answer(503)
        server.wait_for_lines(f"^warning: upstream app: {b.address} is down")
        refused = protocol_fetcher.fetch(server.origin + "/")
        assert (refused.status, refused.header("retry-after")) == (503, "1")
        asked = ("GET", "/")
        assert (a.requests.count(asked), b.requests.count(asked)) == (0, 4)
        a.routes["/health"] = answer(204)
        server.wait_for_lines(f"^upstream app: {a.address} is back in rotation$")
        assert seen(protocol_fetcher.fetch(server.origin + "/"))["server"] == "a"
        assert metrics(gateway.folder / "state" / "admin.sock")[up % a.address] == 1


def test_only_server_gets_no_requests_while_down(run, admin, protocol_fetcher):
    with upstream() as only:
        only.routes["/health"] = answer(500)
        server = run([only.address], 'check = { path = "/health", every = "100ms", failures = 1 }')
        server.wait_for_lines("is down")
        assert protocol_fetcher.fetch(server.origin + "/").status == 503
        assert states(admin()) == ["down"]
        assert ("GET", "/") not in only.requests


def test_slow_check_fails_and_does_not_delay_other_servers(run, admin):
    with upstream() as slow, upstream() as good:
        slow.routes["/health"] = lambda handler, _: handler.connection.recv(1)
        server = run(
            [slow.address, good.address],
            # Long enough for the other server on a busy machine.
            'check = { path = "/health", every = "100ms", timeout = "3s", failures = 1 }',
        )
        server.wait_for_lines(f"{slow.address} is down")
        before = checks(good)
        eventually("the other server is still checked", lambda: checks(good) > before + 2)
        eventually("only one is down", lambda: states(admin()) == ["down", "up"])


def test_many_hanging_servers_do_not_delay_other_checks(run):
    """More hanging servers than any limit on concurrent checks."""
    with upstream() as good, socket.create_server(("0.0.0.0", 0), backlog=200) as hung:
        servers = [f"http://127.0.1.{number}:{hung.getsockname()[1]}" for number in range(1, 101)]
        run(
            [*servers, good.address],
            'check = { path = "/health", every = "100ms", timeout = "1h" }',
        )
        eventually("the responding server is checked repeatedly", lambda: checks(good) > 5)


def test_one_worker_runs_the_checks_and_an_unchanged_reload_does_not_restart_them(
    run, gateway, protocol_fetcher
):
    with upstream() as app, upstream() as other:
        server = run(
            [app.address, other.address], 'check = { path = "/health", every = "1h" }', workers=4
        )
        eventually("both are checked", lambda: (checks(app), checks(other)) == (1, 1))
        for _ in range(3):
            reload(gateway)
        for _ in range(16):
            server.serves(protocol_fetcher)
        # The checks of this reload start after those that the earlier reloads would have started.
        write(
            gateway,
            [app.address, other.address],
            'check = { path = "/other", every = "1h" }',
            workers=4,
        )
        reload(gateway)
        eventually(
            "both are checked again",
            lambda: (checks(app, "/other"), checks(other, "/other")) == (1, 1),
        )
        assert (checks(app), checks(other)) == (1, 1)


def test_checks_of_a_removed_upstream_stop(run, gateway):
    with upstream() as app:
        run([app.address], 'check = { path = "/a", every = "100ms" }')
        eventually("it is checked", lambda: checks(app, "/a") > 2)
        write(gateway, [app.address], 'check = { path = "/b", every = "100ms" }')
        reload(gateway)
        eventually("it is checked on the new path", lambda: checks(app, "/b") > 1)
        before = checks(app, "/a")
        eventually("time passes", lambda: checks(app, "/b") > 10)
        # One check may have been in flight.
        assert checks(app, "/a") <= before + 1
        write(gateway, [app.address], "")
        reload(gateway)
        count = len(app.requests)
        reload(gateway)
        with upstream() as witness:
            write(gateway, [witness.address], 'check = { path = "/c", every = "100ms" }')
            reload(gateway)
            eventually("time passes", lambda: checks(witness, "/c") > 10)
        # One check may have been in flight.
        assert len(app.requests) <= count + 1


def test_server_that_is_down_stays_down_over_a_reload(run, gateway, admin, protocol_fetcher):
    with upstream() as app:
        app.routes["/health"] = answer(500)
        check = 'check = { path = "/health", every = "100ms", failures = 1, successes = 1000 }'
        server = run([app.address], check)
        server.wait_for_lines("is down")
        app.routes["/health"] = answer(200)
        write(gateway, [app.address], f"retries = 1\n{check}")
        reload(gateway)
        assert states(admin()) == ["down"]
        assert protocol_fetcher.fetch(server.origin + "/").status == 503


@pytest.mark.parametrize("protocol", ["http1", "http2", "http3"])
def test_checks_use_the_protocol_and_tls_of_requests(run, gateway, start_serve, identity, protocol):
    app = start_serve()
    tls = f'tls = {{ trust = "{identity.ca}" }}'
    # The timeout is longer than a busy machine delays a check.
    check = 'check = { path = "/small.txt", every = "100ms", timeout = "20s", failures = 1, successes = 1 }'
    server = run([app.origin], f'{tls}\nprotocol = "{protocol}"\n{check}')
    wrong = check.replace("small", "none")
    write(gateway, [app.origin], f'{tls}\nprotocol = "{protocol}"\n{wrong}')
    reload(gateway)
    server.wait_for_lines("is down")
    write(gateway, [app.origin], f'{tls}\nprotocol = "{protocol}"\n{check}')
    # A reload with new settings does not use results of earlier checks.
    reload(gateway)
    answers = json.loads(
        subprocess.run(
            [pronghorn(), "status", "-c", gateway.file], capture_output=True, text=True, timeout=30
        ).stdout
    )
    assert answers["upstream_servers"] == [{"upstream": "app", "server": app.origin, "state": "up"}]
    app.kill()
    server.wait_for_lines("is down", 2)


def test_ejected_server_is_logged_and_stays_ejected_over_a_reload_with_trust(
    run, gateway, admin, identity, start_serve, protocol_fetcher
):
    good = start_serve()
    gone = start_serve()
    gone.kill()
    health = 'health = { failures = 1, out = "1h", out_max = "1h" }'
    server = run(
        [gone.origin, good.origin],
        f'policy = "first"\ntls = {{ trust = "{identity.ca}" }}\n{health}',
    )
    assert protocol_fetcher.fetch(server.origin + "/small.txt").status == 200
    server.wait_for_lines(f"^warning: upstream app: {gone.origin} ejected: requests to it failed$")
    reload(gateway)
    assert states(admin()) == ["ejected", "up"]
