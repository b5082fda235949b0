"""Several servers with one Redis: sessions and early data go from any server to any other."""

from __future__ import annotations

import itertools

import pytest

from harness.admin import metrics
from harness.clients.aioquic_h3 import ask_with_aioquic
from harness.clients.go import GoClient
from harness.clients.openssl import openssl, request
from harness.fleet import new_secret, session_of_openssl, tickets_from, token_from
from harness.gateway import SITE
from harness.redis import TcpProxy
from harness.udp_proxy import UdpProxy
from harness.waiting import eventually

MOVES = 40
MANY_MOVES = 1000
TICKETS = 2
"""Number of tickets that a server sends after each handshake."""


@pytest.fixture
def fleet(make_fleet, redis):
    return make_fleet(redis.unix_url)


# Anywhere.


def others_in_turn(nodes, moves: int):
    """Returns the node of each move: never that of the last one."""
    return itertools.islice(itertools.cycle([*nodes[1:], nodes[0]]), moves)


async def move_with_aioquic(nodes, ca, moves: int) -> int:
    """Resumes on one node after the other; returns how often early data was accepted."""
    tickets: list = []
    first = await ask_with_aioquic(nodes[0].origin, ca, tickets, early=False, path="/first")
    assert first[0].status == 200
    accepted_times = 0
    for number, node in enumerate(others_in_turn(nodes, moves)):
        answer, resumed, accepted = await ask_with_aioquic(
            node.origin, ca, tickets, early=True, path=f"/{number}"
        )
        assert answer.status == 200
        accepted_times += resumed and accepted
        # Only the newest: the others were given by another node than the last.
        del tickets[:-1]
    return accepted_times


def move_with_quic_go(fleet, ca, moves: int) -> int:
    """Does the same. Each connection waits until all tickets of the one before have been sent: the
    client would use a ticket twice if the last one arrived when it had begun to reconnect.
    """
    nodes, accepted_times = fleet.nodes, 0
    with GoClient("3", ca) as client:
        assert client.round(f"{nodes[0].origin}/first").errors == []
        for number, node in enumerate(others_in_turn(nodes, moves)):
            expected = TICKETS * (number + 1)
            eventually(
                "the sessions to be stored",
                lambda expected=expected: fleet.sum("shared_sessions_stored_total") >= expected,
            )
            early = client.round(f"{node.origin}/{number}", method="GET_0RTT", reconnect=True)
            # quic-go leaves it to the application to send a rejected early request again.
            if early.errors != ["http3: parsing frame failed: 0-RTT rejected"]:
                assert early.errors == []
                assert early.responses[0].status == 200
                accepted_times += early.quic["resumed"] and early.quic["early_data"]
    return accepted_times


async def test_ticket_of_one_node_gives_early_data_on_the_others_to_aioquic(fleet, ca):
    nodes = fleet.start_all("a", "b", "c")
    assert await move_with_aioquic(nodes, ca, MOVES) == MOVES
    assert fleet.sum("early_data_accepted_total") == MOVES
    assert fleet.sum("shared_sessions_taken_for_good_total") == MOVES
    assert all(node.value("early_data_accepted_total") >= MOVES // 3 for node in nodes)
    # Each of these handshakes was parked, and none was left.
    assert fleet.sum("handshakes_parked_total") >= MOVES
    for transport in ("quic", "tcp"):
        assert fleet.sum(f'handshakes_parked{{transport="{transport}"}}') == 0
    assert all("pronghorn_worker_turn_seconds_count" in node.metrics() for node in nodes)


def test_ticket_of_one_node_gives_early_data_on_the_others_to_quic_go(fleet, ca):
    fleet.start_all("a", "b", "c")
    assert move_with_quic_go(fleet, ca, MOVES) == MOVES
    assert fleet.sum("early_data_accepted_total") == MOVES


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_of_many_moves_of_aioquic_almost_all_give_early_data(fleet, ca):
    nodes = fleet.start_all("a", "b", "c")
    assert await move_with_aioquic(nodes, ca, MANY_MOVES) >= 0.99 * MANY_MOVES


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_of_many_moves_of_quic_go_almost_all_give_early_data(fleet, ca):
    fleet.start_all("a", "b", "c")
    assert move_with_quic_go(fleet, ca, MANY_MOVES) >= 0.99 * MANY_MOVES


def test_ticket_of_one_node_gives_early_data_on_the_others_over_tcp(fleet, tmp_path):
    nodes = fleet.start_all("a", "b", "c")
    session, next_session = tmp_path / "session", tmp_path / "next"
    early = tmp_path / "request"
    # The connection stays open until the handshake is done and has brought new tickets.
    early.write_bytes(request("GET", "/early").replace(b"connection: close\r\n", b""))
    last = request("GET", "/last")
    said = openssl(nodes[0].port, "-sess_out", session, request=request("GET", "/first"))
    assert "New, TLSv1.3" in said
    for node in [*nodes[1:], *nodes]:
        said = openssl(
            node.port,
            *("-sess_in", session, "-sess_out", next_session, "-early_data", early),
            request=last,
        )
        assert "Reused, TLSv1.3" in said
        assert "Early data was accepted" in said
        assert said.count("HTTP/1.1 200") == 2
        # The client sends the same ticket to another node: a replay.
        again = openssl(nodes[0].port, "-sess_in", session, "-early_data", early, request=last)
        assert "New, TLSv1.3" in again
        assert "Early data was rejected" in again
        assert "HTTP/1.1 200" in again
        next_session.rename(session)


def test_session_of_tls_1_2_is_resumed_on_other_nodes(fleet, tmp_path):
    nodes = fleet.start_all("a", "b", "c")
    session = tmp_path / "session"

    def ask(node, *flags) -> str:
        said = openssl(
            node.port, "-no_ticket", *flags, request=request("GET", "/"), version="-tls1_2"
        )
        assert "HTTP/1.1 200" in said
        return said

    assert "New, TLSv1.2" in ask(nodes[0], "-sess_out", session)
    # Without early data, a session may be used on several connections.
    for node in [*nodes[1:], *nodes]:
        assert "Reused, TLSv1.2" in ask(node, "-sess_in", session)


async def test_sessions_of_another_site_or_fleet_are_not_resumed(fleet, redis, ca, tmp_path):
    (node,) = fleet.start_all("a")
    tickets = await tickets_from(node, ca, 2)
    # The same Redis, but other secrets.
    fleet.write_secrets(new_secret())
    (other,) = fleet.start_all("b")
    answer, resumed, accepted = await ask_with_aioquic(
        other.origin, ca, tickets, early=True, path="/"
    )
    assert (answer.status, resumed, accepted) == (200, False, False)
    assert other.value("shared_sessions_missing_total") == 1


async def test_server_without_a_fleet_has_no_trace_of_one(start, gateway, ca, up):
    gateway.write(
        SITE + f'[[sites.routes]]\nproxy = "{up.address}"\n', server='state_dir = "state"'
    )
    server, tickets = start(gateway.command()), []
    await ask_with_aioquic(server.origin, ca, tickets, early=False, path="/")
    _, _, accepted = await ask_with_aioquic(server.origin, ca, tickets, early=True, path="/")
    assert accepted
    seen = metrics(gateway.folder / "state/admin.sock")
    assert [name for name in seen if "shared" in name or "fleet" in name] == []
    assert seen["pronghorn_handshakes_parked_total"] == 0


# What Redis sees.


async def test_redis_stores_and_receives_nothing_readable(
    make_fleet, redis, ca, identity, tmp_path
):
    with TcpProxy(redis.address) as proxy:
        fleet = make_fleet(proxy.url)
        log = tmp_path / "keys.log"
        (node,) = fleet.start_all("a", env={"SSLKEYLOGFILE": str(log)})
        tickets = await tickets_from(node, ca, 4)
        session = tmp_path / "session"
        flags = ("-no_ticket", "-sess_out", session)
        openssl(node.port, *flags, request=request("GET", "/"), version="-tls1_2")
        eventually("the session to be stored", lambda: len(redis.keys()) == 5)
        stored, sent = redis.dump(), bytes(proxy.passed)
    of_tls_1_2 = session_of_openssl(session)
    secrets = [bytes.fromhex(of_tls_1_2[name]) for name in ("Master-Key", "Session-ID")]
    for ticket in tickets:
        secrets += [ticket.ticket, ticket.resumption_secret]
    logged = [line.split()[1:] for line in log.read_text().splitlines()]
    secrets += [bytes.fromhex(part) for parts in logged for part in parts]
    secrets += [bytes.fromhex(line) for line in fleet.secrets()]
    assert len(secrets) > 20
    secrets += [b"localhost", b"127.0.0.1", b"Pronghorn tests", identity.cert.read_bytes()[:64]]
    for content in (stored, sent):
        assert content.count(b"pronghorn:session:") >= 5
        for secret in secrets:
            for form in (secret, secret.hex().encode(), secret.hex().upper().encode()):
                assert form not in content, secret


# Secrets.


async def test_secrets_are_rotated_without_losing_sessions(fleet, ca):
    nodes = fleet.start_all("a", "b")
    old, new = fleet.secrets()[0], new_secret()
    before = await tickets_from(nodes[0], ca, 4)

    async def resume(tickets: list, node) -> bool:
        ticket = [tickets.pop(0)]
        answer, resumed, accepted = await ask_with_aioquic(
            node.origin, ca, ticket, early=True, path="/"
        )
        assert answer.status == 200
        assert resumed == accepted
        return resumed

    # Understood by all before any uses it.
    for lines in ([old, new], [new, old]):
        fleet.write_secrets(*lines)
        fleet.reload()
        assert await resume(before, nodes[1])
    during = await tickets_from(nodes[0], ca, 2)
    fleet.write_secrets(new)
    fleet.reload()
    assert not await resume(before, nodes[1])
    assert await resume(during, nodes[1])
    assert nodes[1].server.wait_for_lines("fleet: the secrets have changed", 3)
    # A file that cannot be used changes nothing.
    fleet.secrets_file.write_text("short\n")
    with pytest.raises(AssertionError, match="line 1: 5 characters"):
        nodes[1].reload()
    assert await resume(during, nodes[1])


async def test_address_tokens_of_one_node_are_accepted_by_the_others(fleet, ca):
    a, b = fleet.start_all("a", "b")
    token = await token_from(a, ca)
    await token_from(b, ca, token)
    assert b.value("tokens_accepted_total") == 1
    of_old, old, new = await token_from(a, ca), fleet.secrets()[0], new_secret()
    fleet.write_secrets(new, old)
    fleet.reload()
    await token_from(b, ca, of_old)
    assert b.value("tokens_accepted_total") == 2
    of_new = await token_from(a, ca)
    fleet.write_secrets(new)
    fleet.reload()
    await token_from(b, ca, of_new)
    assert b.value("tokens_accepted_total") == 3
    await token_from(b, ca, token)
    assert b.value("tokens_accepted_total") == 3


async def test_first_server_makes_secrets_in_redis_and_all_read_them(make_fleet, redis, ca):
    fleet = make_fleet(redis.unix_url, secrets="redis")
    a, b = fleet.start_all("a", "b")
    key = "pronghorn:session:secrets"
    secret = redis.command("GET", key)
    assert len(bytes.fromhex(secret)) == 32
    tickets = await tickets_from(a, ca, 2)
    _, resumed, accepted = await ask_with_aioquic(b.origin, ca, tickets, early=True, path="/")
    assert (resumed, accepted) == (True, True)
    # An operator rotates them by setting the key.
    redis.command("SET", key, f"{new_secret()}\n{secret}")
    fleet.reload()
    b.server.wait_for_lines("fleet: the secrets have changed")
    _, resumed, accepted = await ask_with_aioquic(b.origin, ca, tickets, early=True, path="/")
    assert (resumed, accepted) == (True, True)
    # Without Redis, a reload fails as a whole.
    redis.stop()
    with pytest.raises(AssertionError, match=f"cannot read the secrets in the key `{key}`"):
        b.reload()
    assert b.value('reloads_total{result="failure"}') == 1
    answer, *_ = await ask_with_aioquic(b.origin, ca, [], early=False, path="/")
    assert answer.status == 200


# Stateless resets.


def test_packets_at_another_node_do_not_end_a_connection(fleet, ca):
    """RFC 9000 section 21.11: a key of resets that nodes share would."""
    a, b = fleet.start_all("a", "b")
    with UdpProxy(a.port, seed="moved") as proxy, GoClient("3", ca) as client:
        url = f"https://127.0.0.1:{proxy.port}/"
        assert client.round(url).errors == []
        proxy.server = ("127.0.0.1", b.port)
        client.send(url)
        eventually(
            "a stateless reset of the other node",
            lambda: b.value("stateless_resets_sent_total") > 0,
        )
        proxy.server = ("127.0.0.1", a.port)
        again = client.receive()
        assert (again.errors, again.connections) == ([], 1)
        # The node that had the connection, and has lost it, does end it.
        a.server.kill()
        a = fleet.start("a", listen=f"127.0.0.1:{a.port}")
        again = client.round(url)
        assert again.connections == 2 or again.errors
        assert a.value("stateless_resets_sent_total") > 0


def test_reset_of_another_node_at_the_same_address_does_not_end_a_connection(fleet, ca):
    """Addresses of nodes are the same behind a balancer, and the key depends on the address too."""
    (a,) = fleet.start_all("a")
    url = f"{a.origin}/"
    with GoClient("3", ca) as client:
        assert client.round(url).errors == []
        a.server.kill()
        b = fleet.start("b", listen=f"127.0.0.1:{a.port}")
        client.send(url)
        # After a reset that a client accepts, it sends nothing more over its connection. A request
        # has one or two datagrams, and each retransmission two.
        eventually(
            "packets after the first reset", lambda: b.value("stateless_resets_sent_total") >= 5
        )
        b.server.kill()
        a = fleet.start("a", listen=f"127.0.0.1:{a.port}")
        again = client.receive()
        assert again.connections == 2 or again.errors
        assert a.value("stateless_resets_sent_total") > 0
