"""Certificate orders: an authority's rate limits, and processes that share a folder."""

from __future__ import annotations

import email.utils
import fcntl
import json
import threading
import time
from datetime import datetime

import pytest

from harness.acme_proxy import Answer, proxied
from harness.gateway import Gateway
from harness.ordering import NAME, certificates, errors_of, limited, write
from harness.pebble import certificates_of, own_address
from harness.waiting import eventually

HOUR = 3_600


@pytest.fixture
def proxy(pebble):
    with proxied(pebble) as server:
        yield server


def order_of(socket, name: str = NAME) -> dict:
    return next(one for one in certificates(socket) if one["hosts"] == [name])["order"]


def seconds_until(moment: str | None) -> float:
    return datetime.fromisoformat(moment).timestamp() - time.time() if moment else 0


def test_rate_limit_is_waited_out_and_logged_once(start, gateway, pebble, proxy):
    pebble.start()
    refusals = iter([limited("7")])
    proxy.answer = lambda _, path: next(refusals, None) if path == "/order-plz" else None
    write(gateway, pebble)
    server = start(gateway.command(), listeners=2)
    server.wait_for_lines("has a certificate, valid until", seconds=90)
    (line,) = errors_of(server)
    said = "the authority says: too many orders (rateLimited); next attempt in 7s, as the authority asked"
    assert line.endswith(f"no certificate for {NAME}: {said}")
    refused, ordered = proxy.asked("/order-plz")
    assert ordered - refused >= 7
    # No other request was made in between, and the same challenge was tried.
    assert not [when for when, _, _ in proxy.requests if refused < when < refused + 7]


def test_rate_limit_is_remembered_over_a_restart(start, gateway, pebble, proxy):
    pebble.start()
    proxy.answer = lambda _, path: limited(str(5 * HOUR)) if path == "/order-plz" else None
    write(gateway, pebble)
    server = start(gateway.command(), listeners=2)
    server.wait_for_lines("next attempt in 5h, as the authority asked$")
    server.kill()
    asked = len(proxy.requests)
    again = start(gateway.command(), listeners=2)
    admin = gateway.folder / "state/admin.sock"
    left = eventually("the next attempt is known", lambda: seconds_until(order_of(admin)["next"]))
    assert 4 * HOUR < left <= 5 * HOUR + 1
    assert (len(proxy.requests), errors_of(again), order_of(admin)["failures"]) == (asked, [], 1)


def test_rate_limit_without_retry_after_waits_more_than_seconds(start, gateway, pebble, proxy):
    pebble.start()
    proxy.answer = lambda _, path: limited(None) if path == "/order-plz" else None
    write(gateway, pebble)
    server = start(gateway.command(), listeners=2)
    server.wait_for_lines(r"too many orders \(rateLimited\); next attempt in [56]m( \d+s)?$")
    assert len(errors_of(server)) == 1


NAMES = [f"site-{number}.pronghorn.test" for number in range(6)]


@pytest.mark.parametrize("path", ["/dir", "/nonce-plz", "/sign-me-up", "/order-plz"])
def test_unavailable_authority_pauses_all_orders(start, gateway, pebble, proxy, path):
    pebble.start()
    # Like a proxy in front of an authority, which knows nothing of ACME.
    later = email.utils.formatdate(time.time() + 2 * HOUR, usegmt=True)
    busy = Answer(503, [("content-type", "text/html"), ("retry-after", later)], b"<h1>busy</h1>")
    proxy.answer = lambda _, asked: busy if asked == path else None
    write(gateway, pebble, NAMES)
    server = start(gateway.command(), listeners=2)
    admin = gateway.folder / "state/admin.sock"

    def all_wait() -> bool:
        return all(seconds_until(one["order"]["next"]) > HOUR for one in certificates(admin))

    eventually("all of them wait", all_wait)
    (line,) = errors_of(server)
    assert "the authority answered 503 Service Unavailable; next attempt in 1h 59m" in line
    assert line.endswith("as the authority asked, for all names")
    # Orders that already ran could not know.
    assert 1 <= len(proxy.asked(path)) <= 4
    assert pebble.orders == 0


def test_authority_unavailable_for_renewals_is_logged_once(start, gateway, pebble, proxy):
    pebble.start()
    write(gateway, pebble, NAMES)
    server = start(gateway.command(), listeners=2)
    server.wait_for_lines("has a certificate", len(NAMES))
    server.kill()
    busy = Answer(503, [("retry-after", str(2 * HOUR))])
    proxy.answer = lambda _, asked: busy if "renewalInfo" in asked else None
    before = len(proxy.requests)
    server = start(gateway.command(), listeners=2)
    line = "warning: cannot query renewal times: the authority answered 503 Service Unavailable; next attempt in 2h"
    server.wait_for_lines(f"{line}, as the authority asked, for all names$")
    admin = gateway.folder / "state/admin.sock"
    eventually(
        "all next renewals to be known",
        lambda: all(one["order"]["next"] for one in certificates(admin)),
    )
    assert sum("cannot query renewal times" in line for line in server.lines) == 1
    # Requests for the directory and the renewal information, by orders that could not know.
    assert len(proxy.requests) - before <= 2 * 4


@pytest.fixture
def other(tmp_path, identity, gateway) -> Gateway:
    """Returns the configuration of another process with the same state folder."""
    (tmp_path / "other").mkdir()
    return Gateway(tmp_path / "other", identity)


def write_other(other, gateway, pebble) -> None:
    address = own_address()
    admin = '[admin]\nlisten = "unix:other.sock"\n'
    state = gateway.folder / "state"
    write(
        other,
        pebble,
        listen=(f"{address}:4443", f"http://{address}:8080"),
        admin=admin,
        state=state,
    )


def test_processes_that_share_a_folder_order_one_certificate(start, gateway, other, pebble):
    # The name resolves to only one of them, and either may be the first to order.
    pebble.start(PEBBLE_VA_ALWAYS_VALID="1")
    write(gateway, pebble)
    write_other(other, gateway, pebble)
    servers = [start(one.command(), listeners=2) for one in (gateway, other)]
    for server in servers:
        server.wait_for_lines(f"{NAME} (has a certificate|was renewed by another process)")
    assert (pebble.orders, pebble.accounts, [errors_of(server) for server in servers]) == (
        1,
        1,
        [[], []],
    )
    lines = [line for server in servers for line in server.lines if "has a certificate" in line]
    assert len(lines) == 1
    admins = gateway.folder / "state/admin.sock", other.folder / "other.sock"
    one, two = [certificates(admin)[0]["valid_until"] for admin in admins]
    assert one == two is not None


def test_lock_of_a_process_killed_during_an_order_is_taken_over(
    start, gateway, other, pebble, proxy
):
    pebble.start(PEBBLE_VA_ALWAYS_VALID="1")
    reached, go_on = threading.Event(), threading.Event()

    def hold(_, path) -> None:
        if path.startswith("/finalize-order"):
            reached.set()
            go_on.wait(60)

    proxy.answer = hold
    write(gateway, pebble)
    write_other(other, gateway, pebble)
    first = start(gateway.command(), listeners=2)
    assert reached.wait(30)
    second = start(other.command(), listeners=2)
    eventually("it waits", lambda: order_of(other.folder / "other.sock")["next"])
    assert pebble.orders == 1
    first.kill()
    proxy.answer = lambda *_: None
    second.wait_for_lines(f"{NAME} has a certificate")
    go_on.set()
    assert (pebble.orders, pebble.accounts, errors_of(second)) == (2, 1, [])
    again = start(gateway.command(), listeners=2)
    assert certificates(gateway.folder / "state/admin.sock")[0]["valid_until"]
    assert (pebble.orders, errors_of(again)) == (2, [])


def test_rejection_of_one_process_makes_the_other_wait(start, gateway, pebble):
    pebble.start()
    write(gateway, pebble)
    # Creates the folders.
    server = start(gateway.command(), listeners=2)
    server.wait_for_lines("has a certificate")
    server.kill()
    certificates_of(gateway.folder / "state")[NAME].unlink()
    (lock,) = (gateway.folder / "state").glob(f"acme/*/certificates/{NAME}.lock")
    with lock.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        server = start(gateway.command(), listeners=2)
        admin = gateway.folder / "state/admin.sock"
        eventually("it waits for the lock", lambda: order_of(admin)["next"])
        # Holds the lock, like another process that orders.
        refused = {"count": 2, "limits": 0, "not_before": int(time.time()) + HOUR}
        lock.with_suffix(".refused").write_text(json.dumps(refused))
    eventually("it waits for the retry", lambda: seconds_until(order_of(admin)["next"]) > HOUR / 2)
    assert (pebble.orders, order_of(admin)["failures"], errors_of(server)) == (1, 2, [])
