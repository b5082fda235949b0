"""A Redis that is slow, stopped, full or new costs early data, and never a request."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

from harness.clients.aioquic_h3 import ask_with_aioquic
from harness.clients.openssl import openssl, request
from harness.fleet import Fleet, Node
from harness.redis import Redis, TcpProxy
from harness.waiting import DEADLINE_SECONDS, eventually

BACK_SECONDS = 30
"""Time in which early data must be back. It takes a second or two; a busy machine takes longer."""
TIMEOUT = "200ms"
REQUESTS = 10
RESTARTS = 2


class Load:
    """Requests over TCP and HTTP/3 on new connections, in a thread each, until the test is done.

    Each client offers its newest session, and early data with it.
    """

    def __init__(self, nodes: list[Node], ca, folder):
        self.nodes, self.ca, self.folder = nodes, ca, folder
        self.answered = 0
        self.failures: list[str] = []
        self._ended = threading.Event()
        runs = (lambda: asyncio.run(self._http3()), self._tcp)
        self._threads = [threading.Thread(target=self._run, args=(run,)) for run in runs]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def go_on(self, requests: int = REQUESTS) -> None:
        """Waits until more requests are answered, over both."""
        before = self.answered
        eventually(
            "more requests to be answered",
            lambda: self.failures or self.answered >= before + requests,
        )
        assert self.failures == []

    def _run(self, run) -> None:
        try:
            run()
        except Exception as error:
            self.failures.append(repr(error))

    def _note(self, status: object) -> None:
        if status != 200:
            self.failures.append(f"status {status}")
        self.answered += 1

    async def _http3(self) -> None:
        tickets: list = []
        number = 0
        while not self._ended.is_set():
            node = self.nodes[number % len(self.nodes)]
            early = bool(tickets)
            answer, *_ = await ask_with_aioquic(
                node.origin, self.ca, tickets, early=early, path="/http3"
            )
            self._note(answer.status)
            del tickets[:-1]
            number += 1

    def _tcp(self) -> None:
        session, early = self.folder / "load-session", self.folder / "load-request"
        early.write_bytes(request("GET", "/tcp"))
        number = 0
        while not self._ended.is_set():
            node = self.nodes[number % len(self.nodes)]
            flags = ("-sess_in", session) if session.exists() else ()
            said = openssl(node.port, *flags, "-sess_out", session, request=request("GET", "/tcp"))
            self._note(200 if "HTTP/1.1 200" in said else said)
            number += 1


async def resumes_early(fleet: Fleet, ca) -> bool:
    """Whether a ticket of the first node gives early data on the last."""
    tickets: list = []
    first, last = fleet.nodes[0], fleet.nodes[-1]
    await ask_with_aioquic(first.origin, ca, tickets, early=False, path="/")
    answer, resumed, accepted = await ask_with_aioquic(
        last.origin, ca, tickets, early=True, path="/"
    )
    assert answer.status == 200
    return resumed and accepted


async def wait_for_early_data(fleet: Fleet, ca) -> None:
    deadline = time.monotonic() + BACK_SECONDS
    while not await resumes_early(fleet, ca):
        assert time.monotonic() < deadline, "early data is not accepted again"
        await asyncio.sleep(0.1)


@contextlib.contextmanager
def under_load(fleet: Fleet, ca) -> Iterator[Load]:
    with Load(fleet.nodes, ca, fleet.folder) as load:
        load.go_on()
        yield load
        load.go_on()


async def test_requests_go_on_while_redis_is_slow(make_fleet, redis, ca):
    with TcpProxy(redis.address) as proxy:
        fleet = make_fleet(proxy.url, timeout=TIMEOUT)
        fleet.start_all("a", "b")
        await wait_for_early_data(fleet, ca)
        with under_load(fleet, ca) as load:
            proxy.delay_seconds = 1
            await asyncio.to_thread(load.go_on)
            assert fleet.sum("shared_sessions_timeouts_total") > 0
            # After some time-outs no handshake waits any more.
            eventually(
                "lookups to be skipped", lambda: fleet.sum("shared_sessions_skipped_total") > 0
            )
            proxy.delay_seconds = 0
            await wait_for_early_data(fleet, ca)


async def test_requests_go_on_while_redis_does_not_answer(make_fleet, redis, ca):
    with TcpProxy(redis.address) as proxy:
        fleet = make_fleet(proxy.url, timeout=TIMEOUT)
        fleet.start_all("a", "b")
        with under_load(fleet, ca) as load:
            proxy.freeze()
            await asyncio.to_thread(load.go_on)
            assert fleet.sum("shared_sessions_timeouts_total") > 0
            proxy.thaw()
            await wait_for_early_data(fleet, ca)


async def test_requests_go_on_while_redis_is_stopped_and_started(make_fleet, redis: Redis, ca):
    fleet = make_fleet(redis.unix_url, timeout=TIMEOUT)
    a, b = fleet.start_all("a", "b")
    with under_load(fleet, ca) as load:
        for _ in range(RESTARTS):
            redis.stop()
            await asyncio.to_thread(load.go_on)
            eventually("the nodes to notice", lambda: not (a.is_connected() or b.is_connected()))
            await asyncio.to_thread(load.go_on)
            assert fleet.sum("shared_sessions_skipped_total") > 0
            redis.start()
            await wait_for_early_data(fleet, ca)
    said = a.server.wait_for_lines(r"^warning: .*Redis", 1)
    assert said


async def test_requests_go_on_while_redis_is_full(make_fleet, redis: Redis, ca):
    fleet = make_fleet(redis.unix_url)
    fleet.start_all("a", "b")
    with under_load(fleet, ca) as load:
        redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1")
        await asyncio.to_thread(load.go_on)
        eventually(
            "sessions to be refused", lambda: fleet.sum("shared_sessions_not_stored_total") > 0
        )
        assert not await resumes_early(fleet, ca)
        redis.command("CONFIG", "SET", "maxmemory", "0")
        await wait_for_early_data(fleet, ca)


async def test_server_starts_without_redis(make_fleet, redis: Redis, ca):
    redis.stop()
    fleet = make_fleet(redis.unix_url, timeout=TIMEOUT)
    node = fleet.start("a")
    answer, *_ = await ask_with_aioquic(node.origin, ca, [], early=False, path="/")
    assert answer.status == 200
    assert node.value("shared_sessions_skipped_total") > 0
    redis.start()
    eventually("the node to connect", node.is_connected, DEADLINE_SECONDS)
    await wait_for_early_data(fleet, ca)
