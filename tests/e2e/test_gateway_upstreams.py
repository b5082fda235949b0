"""Failing servers of an upstream, as clients of the gateway see them."""

from __future__ import annotations

import socket
import threading

import pytest

from harness.admin import metrics
from harness.gateway import SITE, seen, upstream
from harness.waiting import eventually

ROUTED = SITE + '[[sites.routes]]\nproxy = "app"\n'


@pytest.fixture
def nobody():
    """Yields an address that refuses connections: it is bound, but has no listener."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def app(servers: list[str], more: str) -> str:
    addresses = ", ".join(f'"{server}"' for server in servers)
    return f"{ROUTED}\n[upstreams.app]\nservers = [{addresses}]\n{more}\n"


def test_server_that_answers_500_is_ejected_on_all_workers(start, gateway, protocol_fetcher):
    with upstream("bad") as bad, upstream("good") as good:
        bad.routes["/"] = lambda handler, _: handler.reply(500, b"broken")
        health = 'health = { failures = 2, statuses = [500], out = "1h", out_max = "1h" }'
        gateway.write(app([bad.address, good.address], f'policy = "first"\n{health}'), workers=2)
        server = start(gateway.command())
        statuses = [protocol_fetcher.fetch(server.origin + "/").status for _ in range(8)]
        assert statuses == [500] * 2 + [200] * 6
        assert (len(bad.requests), len(good.requests)) == (2, 6)


def test_all_servers_ejected_is_503_at_once(start, gateway, protocol_fetcher, nobody):
    address = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    with upstream("bad") as bad:
        bad.routes["/"] = lambda handler, _: handler.reply(500, b"broken")
        health = 'health = { failures = 1, statuses = [500], out = "1h", out_max = "1h" }'
        gateway.write(app([address, bad.address], f'policy = "first"\n{health}'))
        server = start(gateway.command())
        assert protocol_fetcher.fetch(server.origin + "/").status == 500
        refused = protocol_fetcher.fetch(server.origin + "/")
        assert refused.status == 503
        assert int(refused.header("retry-after")) > 0
        assert bad.requests == [("GET", "/")]


def test_recovered_server_is_back_in_rotation(start, gateway, protocol_fetcher):
    with upstream("late") as late, upstream("good") as good:
        late.routes["/fail"] = lambda handler, _: handler.reply(500, b"broken")
        health = 'health = { failures = 1, statuses = [500], out = "1s", out_max = "1s" }'
        gateway.write(app([late.address, good.address], f'policy = "first"\n{health}'))
        server = start(gateway.command())
        assert protocol_fetcher.fetch(server.origin + "/fail").status == 500

        def is_asked() -> bool:
            return seen(protocol_fetcher.fetch(server.origin + "/"))["server"] == "late"

        eventually("the server that has recovered answers", is_asked)


def test_failing_only_server_still_gets_requests(start, gateway, protocol_fetcher, nobody):
    gateway.write(app([f"http://127.0.0.1:{nobody.getsockname()[1]}"], "health = { failures = 1 }"))
    server = start(gateway.command())
    for _ in range(4):
        assert protocol_fetcher.fetch(server.origin + "/").status == 502


def test_server_at_its_request_limit_gets_no_more(start, gateway, protocol_fetcher):
    entered, leave = threading.Event(), threading.Event()

    def wait(handler, _):
        entered.set()
        leave.wait(60)
        handler.reply(200, b"slow")

    with upstream() as only:
        only.routes["/slow"] = wait
        gateway.write(app([only.address], "requests = 1"), server='state_dir = "state"', workers=2)
        server = start(gateway.command())
        slow = []
        asking = threading.Thread(
            target=lambda: slow.append(protocol_fetcher.fetch(server.origin + "/slow").status)
        )
        asking.start()
        try:
            assert entered.wait(30)
            for _ in range(4):
                refused = protocol_fetcher.fetch(server.origin + "/")
                assert (refused.status, refused.header("retry-after")) == (503, "1")
        finally:
            leave.set()
            asking.join(60)
        assert slow == [200]
        eventually(
            "capacity is available again",
            lambda: protocol_fetcher.fetch(server.origin + "/").status == 200,
        )
        counts = metrics(gateway.folder / "state" / "admin.sock")
        assert counts['pronghorn_upstream_unavailable_total{reason="busy"}'] >= 4
        assert counts['pronghorn_upstream_unavailable_total{reason="out"}'] == 0


@pytest.mark.parametrize(
    ("budget", "status"), [("", 200), ("retry_budget = { percent = 0, per_second = 0 }", 502)]
)
def test_request_is_retried_within_the_retry_budget(
    start, gateway, protocol_fetcher, nobody, budget, status
):
    with upstream() as good:
        servers = [f"http://127.0.0.1:{nobody.getsockname()[1]}", good.address]
        more = f'policy = "first"\nhealth = {{ failures = 0 }}\n{budget}'
        gateway.write(app(servers, more), server='state_dir = "state"')
        server = start(gateway.command())
        for _ in range(3):
            assert protocol_fetcher.fetch(server.origin + "/").status == status
        counts = metrics(gateway.folder / "state" / "admin.sock")
        found = [
            counts[f'pronghorn_upstream_retries_total{{result="{result}"}}']
            for result in ("sent", "refused")
        ]
        assert found == ([3, 0] if status == 200 else [0, 3])
        assert len(good.requests) == (3 if status == 200 else 0)


def test_hash_of_path_or_field_selects_the_same_server_on_all_workers(
    start, gateway, protocol_fetcher
):
    with upstream("a") as a, upstream("b") as b:
        for policy, target in [
            ('policy = "path"', lambda number: (f"/{number % 8}?x", ())),
            (
                'policy = "header"\npolicy_header = "x-user"',
                lambda number: (f"/{number}", [("x-user", str(number % 8))]),
            ),
        ]:
            gateway.write(app([a.address, b.address], policy), workers=2)
            server = start(gateway.command())
            answered = {}
            for number in range(24):
                path, headers = target(number)
                name = seen(protocol_fetcher.fetch(server.origin + path, headers=headers))["server"]
                assert answered.setdefault(number % 8, name) == name
            assert len(a.requests) + len(b.requests) == 24
            a.requests.clear()
            b.requests.clear()
