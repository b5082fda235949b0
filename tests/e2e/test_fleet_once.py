"""Several servers with one Redis: a recorded first flight is accepted once, whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from harness.clients.aioquic_h3 import ask_with_aioquic
from harness.clients.go import GoClient
from harness.fleet import SecondPort, early_flight, send_at_once, tickets_from
from harness.redis import Redis, TcpProxy, redis_server
from harness.waiting import DEADLINE_SECONDS, eventually

RECORDINGS = 20
RECORDINGS_OF_QUIC_GO = 4
MANY_RECORDINGS = 1000
BATCH = 100
FAILOVERS = 3
MANY_FAILOVERS = 20

LIMITS = 'handshake_timeout = "2s"\nopen_handshakes = 100000'
"""The flights' handshakes never end: there is nobody behind them."""

NO_SESSION = 'early_data_refused_total{reason="no_session"}'
STALE = 'early_data_refused_total{reason="stale"}'


@pytest.fixture
def fleet(make_fleet, redis):
    return make_fleet(redis.unix_url, limits=LIMITS)


def times_seen(up, path: str) -> int:
    return up.requests.count(("GET", path))


def replay_at_once(flight, nodes, up, path: str) -> None:
    """Sends a flight to all nodes at the same moment, and waits until each has answered it."""
    with contextlib.ExitStack() as stack:
        senders = send_at_once(flight, [node.port for node in nodes])
        for sender in senders:
            stack.enter_context(sender)
        for sender in senders:
            assert sender.recv(65535)
        eventually("the upstream to get the request", lambda: times_seen(up, path) >= 1)


async def once_with_aioquic(fleet, nodes, ca, up, recordings: int) -> None:
    paths = [f"/aioquic/{number}" for number in range(recordings)]
    for begin in range(0, recordings, BATCH):
        some = paths[begin : begin + BATCH]
        tickets = await tickets_from(nodes[0], ca, len(some))
        for path, ticket in zip(some, tickets, strict=True):
            flight = early_flight(ticket, ca, f"127.0.0.1:{nodes[0].port}", path)
            replay_at_once(flight, nodes, up, path)
    check(fleet, up, paths)


def check(fleet, up, paths: list[str]) -> None:
    """Checks that each of these requests was accepted once, and all replays were refused."""
    assert [times_seen(up, path) for path in paths] == [1] * len(paths)
    assert fleet.sum("early_data_accepted_total") == len(paths)
    assert fleet.sum("shared_sessions_taken_for_good_total") == len(paths)
    refused = fleet.sum(NO_SESSION)
    assert refused == (len(fleet.nodes) - 1) * len(paths)


def once_with_quic_go(fleet, nodes, ca, up, recordings: int) -> None:
    paths = [f"/quic-go/{number}" for number in range(recordings)]
    for number, path in enumerate(paths):
        origin = nodes[number % len(nodes)]
        with SecondPort(origin.port) as recorder, GoClient("3", ca, timeout_seconds=1) as client:
            url = f"https://127.0.0.1:{recorder.port}"
            assert client.round(f"{url}/first").errors == []
            client.send(f"{url}{path}", method="GET_0RTT", reconnect=True)
            flight = recorder.flight()
            client.popen.kill()
            replay_at_once(flight, nodes, up, path)
    check(fleet, up, paths)


async def test_first_flight_at_three_nodes_at_once_is_accepted_once(fleet, ca, up):
    nodes = fleet.start_all("a", "b", "c")
    await once_with_aioquic(fleet, nodes, ca, up, RECORDINGS)


def test_recorded_first_flight_of_quic_go_is_accepted_once(fleet, ca, up):
    nodes = fleet.start_all("a", "b", "c")
    once_with_quic_go(fleet, nodes, ca, up, RECORDINGS_OF_QUIC_GO)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_each_of_many_first_flights_is_accepted_once(fleet, ca, up):
    nodes = fleet.start_all("a", "b", "c")
    await once_with_aioquic(fleet, nodes, ca, up, MANY_RECORDINGS)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_each_of_many_recorded_first_flights_of_quic_go_is_accepted_once(fleet, ca, up):
    nodes = fleet.start_all("a", "b", "c")
    once_with_quic_go(fleet, nodes, ca, up, MANY_RECORDINGS)


# Redis that forgets what was taken.


async def wait_for_early_data(node, ca) -> None:
    """Resumes on a node until it accepts early data: it has then noticed that the first replica
    gave its Redis another ID, which it asks for once a second.
    """
    tickets: list = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        answer, _, accepted = await ask_with_aioquic(
            node.origin, ca, tickets, early=bool(tickets), path="/settle"
        )
        assert answer.status == 200
        if accepted:
            return
        assert time.monotonic() < deadline, "no early data is accepted"
        await asyncio.sleep(0.05)


def replicate(replica: Redis, address: str) -> None:
    """Makes `replica` one of the server at this address, and waits until it is complete."""
    replica.command("REPLICAOF", *address.split(":"))
    eventually(
        "the replica to be complete",
        lambda: replica.info("replication").get("master_link_status") == "up",
    )


def wait_for_nodes(fleet, redis: Redis) -> None:
    """Waits until all nodes are connected to this Redis."""

    def are_connected() -> bool:
        clients = redis.command("CLIENT", "LIST", "TYPE", "normal").splitlines()
        others = [client for client in clients if "cmd=client" not in client]
        return len(others) == len(fleet.nodes) and all(node.is_connected() for node in fleet.nodes)

    eventually("the nodes to connect", are_connected)


def take(flight, node, stack: contextlib.ExitStack) -> None:
    """Sends a flight to a node until it has processed the ticket."""
    (sender,) = send_at_once(flight, [node.port])
    assert stack.enter_context(sender).recv(65535)


async def flights_of(node, ca, paths: list[str]) -> list:
    tickets = await tickets_from(node, ca, len(paths))
    pairs = zip(tickets, paths, strict=True)
    return [early_flight(ticket, ca, f"127.0.0.1:{node.port}", path) for ticket, path in pairs]


def check_refused(flights, paths, node, up, stack) -> None:
    """Checks that a node finds the sessions of these flights, and accepts no early data."""
    found = node.value("shared_sessions_found_total")
    stale = node.value(STALE)
    seen = [times_seen(up, path) for path in paths]
    for flight in flights:
        take(flight, node, stack)
    assert node.value("shared_sessions_found_total") == found + len(flights)
    assert node.value(STALE) == stale + len(flights)
    assert node.value("early_data_accepted_total") == 0
    assert [times_seen(up, path) for path in paths] == seen


async def fail_over(fleet, primary: Redis, replica: Redis, ca, up, number: int) -> None:
    """Takes a session on the primary while its replica is frozen, promotes the replica, which still
    has the session, and sends the same flight to another node.
    """
    a, b = fleet.nodes
    paths = [f"/taken/{number}", f"/kept/{number}"]
    with TcpProxy(primary.address) as link, contextlib.ExitStack() as stack:
        replicate(replica, link.address)
        await wait_for_early_data(a, ca)
        flights = await flights_of(a, ca, paths)
        eventually("replication", lambda: sorted(primary.keys()) == sorted(replica.keys()))
        link.freeze()
        take(flights[0], a, stack)
        eventually("the early request", lambda: times_seen(up, paths[0]) == 1)
        primary.stop()
        replica.command("REPLICAOF", "NO", "ONE")
        wait_for_nodes(fleet, replica)
        check_refused(flights, paths, b, up, stack)
    primary.start()


async def fail_over_often(make_fleet, ca, up, tmp_path, times: int) -> None:
    with redis_server(tmp_path / "one") as one, redis_server(tmp_path / "two") as two:
        fleet = make_fleet(one.url, two.url, limits=LIMITS)
        fleet.start_all("a", "b")
        for number in range(times):
            pair = (one, two) if number % 2 == 0 else (two, one)
            await fail_over(fleet, *pair, ca, up, number)


async def test_first_flight_is_not_accepted_again_after_a_failover(make_fleet, ca, up, tmp_path):
    await fail_over_often(make_fleet, ca, up, tmp_path, FAILOVERS)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_first_flights_are_not_accepted_again_after_many_failovers(
    make_fleet, ca, up, tmp_path
):
    await fail_over_often(make_fleet, ca, up, tmp_path, MANY_FAILOVERS)


async def test_first_flight_is_not_accepted_again_after_redis_has_loaded_an_older_file(
    fleet, redis, ca, up
):
    a, b = fleet.start_all("a", "b")
    paths = ["/taken", "/kept"]
    flights = await flights_of(a, ca, paths)
    redis.dump()
    with contextlib.ExitStack() as stack:
        take(flights[0], a, stack)
        eventually("the early request", lambda: times_seen(up, paths[0]) == 1)
        redis.stop()
        redis.start()
        wait_for_nodes(fleet, redis)
        check_refused(flights, paths, b, up, stack)


async def test_early_data_needs_the_required_replicas(make_fleet, redis, ca, tmp_path):
    with redis_server(tmp_path / "replica") as replica, TcpProxy(redis.address) as link:
        fleet = make_fleet(redis.url, timeout="2s", sessions="replicas = 1")
        a, b = fleet.start_all("a", "b")
        replicate(replica, link.address)
        await wait_for_early_data(a, ca)
        tickets = await tickets_from(a, ca, 2)
        link.freeze()
        outcome = await ask_with_aioquic(b.origin, ca, tickets, early=True, path="/frozen")
        assert (outcome[0].status, *outcome[1:]) == (200, True, False)
        assert b.value("shared_sessions_unacknowledged_total") == 1
        link.thaw()
        await wait_for_early_data(b, ca)
