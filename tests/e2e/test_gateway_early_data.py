"""Early data (0-RTT) by route: each route of `pronghorn run` has its own policy."""

from __future__ import annotations

import subprocess

import pytest

from harness.admin import metrics
from harness.clients.aioquic_h3 import ask_with_aioquic
from harness.clients.openssl import openssl, request
from harness.gateway import SITE, seen, upstream

EARLY_TRIES = 10

LAYERS = [
    '{ name = "allow", addresses = ["127.0.0.0/8"] }',
    '{ name = "deny", addresses = ["10.0.0.0/8"] }',
    '{ name = "rate-limit", requests = 100 }',
    '{ name = "concurrency-limit", requests = 100 }',
]


@pytest.fixture
def up():
    with upstream() as up:
        yield up


def routes(up) -> str:
    policies = "".join(
        f'[[sites.routes]]\nmatch = "/{policy}"\nearly_data = "{policy}"\nproxy = "{up.address}"\n'
        for policy in ("off", "safe", "hold", "all")
    )
    return policies + f'[[sites.routes]]\nproxy = "{up.address}"\n'


def serve(start, gateway, up):
    gateway.write(SITE + routes(up), server='state_dir = "state"')
    return start(gateway.command())


# Status of an early GET and of an early POST, by the path's policy.
STATUSES = [("off", 425, 425), ("safe", 200, 425), ("hold", 200, 200), ("all", 200, 200)]


async def test_early_request_is_treated_by_its_route_over_quic(start, gateway, ca, up):
    server, tickets = serve(start, gateway, up), []

    async def ask(path: str, method: str, *, early: bool = True):
        body = b"pay" if method == "POST" else b""
        answer, _, accepted = await ask_with_aioquic(
            server.origin, ca, tickets, early=early, path=path, method=method, body=body
        )
        assert accepted or not early
        return answer

    await ask("/", "GET", early=False)
    # Routes without a policy have that of the server, which is "safe" by default.
    for policy, of_get, of_post in [*STATUSES, ("other", 200, 425)]:
        for method, status in (("GET", of_get), ("POST", of_post)):
            answer = await ask(f"/{policy}", method)
            assert answer.status == status, (policy, method)
            if status != 200:
                continue
            # Upstreams are not told of a request that has waited: it is no early data any more.
            is_early = (policy, method) != ("hold", "POST")
            got = seen(answer)
            assert got["headers"].get("early-data") == ("1" if is_early else None), (policy, method)
            assert got["method"] == method
    counted = metrics(gateway.folder / "state/admin.sock")
    assert counted["pronghorn_requests_held_total"] == 1
    assert counted["pronghorn_early_data_requests_refused_total"] == 4


@pytest.mark.parametrize(("policy", "of_get", "of_post"), STATUSES)
def test_early_request_is_treated_by_its_route_over_tcp(
    start, gateway, tmp_path, up, policy, of_get, of_post
):
    server = serve(start, gateway, up)
    # The last one has more content than is read ahead of a route that has not decided.
    asked = (("GET", of_get, 0), ("POST", of_post, 3), ("POST", of_post, 12_000))
    for method, status, size in asked:
        (tmp_path / "request").write_bytes(request(method, f"/{policy}", size))
        session = tmp_path / "session"
        for _ in range(EARLY_TRIES):
            openssl(server.port, "-sess_out", session, request=request("GET", "/"))
            said = openssl(server.port, "-sess_in", session, "-early_data", tmp_path / "request")
            assert "Early data was accepted" in said
            if f"HTTP/1.1 {status}" in said:
                break
            # A busy server may read it together with the end of the handshake: then it is not
            # early.
            assert "HTTP/1.1 200" in said, method
        assert f"HTTP/1.1 {status}" in said, method


async def test_held_request_is_answered_by_layers_that_use_the_client_address(
    start, gateway, ca, up
):
    """Over QUIC the address is verified only by the handshake."""
    text = "".join(
        f'[[sites.routes]]\nmatch = "/{number}"\nrespond = "here"\nlayers = [{layer}]\n'
        for number, layer in enumerate(LAYERS)
    )
    gateway.write(SITE + text + routes(up), server='state_dir = "state"\nearly_data = "hold"')
    server, tickets = start(gateway.command()), []
    await ask_with_aioquic(server.origin, ca, tickets, early=False, path="/")
    for number, layer in enumerate(LAYERS):
        answer, _, accepted = await ask_with_aioquic(
            server.origin, ca, tickets, early=True, path=f"/{number}"
        )
        assert (answer.status, accepted) == (200, True), layer
    assert metrics(gateway.folder / "state/admin.sock")["pronghorn_requests_held_total"] == len(
        LAYERS
    )


async def test_policy_of_the_server_changes_with_a_reload(start, gateway, ca, up):
    server, tickets = serve(start, gateway, up), []

    async def post_early() -> int:
        answer, _, accepted = await ask_with_aioquic(
            server.origin, ca, tickets, early=True, path="/", method="POST", body=b"pay"
        )
        assert accepted
        return answer.status

    await ask_with_aioquic(server.origin, ca, tickets, early=False, path="/")
    assert await post_early() == 425
    gateway.write(SITE + routes(up), server='state_dir = "state"\nearly_data = "hold"')
    server.popen.send_signal(1)
    server.wait_for_lines("serving 1 site", 2)
    assert await post_early() == 200
    # Whether early data is accepted at all is decided when the server starts.
    route = f'[[sites.routes]]\nproxy = "{up.address}"\n'
    gateway.write(SITE + route, server='state_dir = "state"\nearly_data = "off"')
    server.popen.send_signal(1)
    server.wait_for_lines("early_data.*restart")


def test_policy_of_a_route_needs_early_data_of_the_server(gateway, up):
    gateway.write(SITE + routes(up), server='early_data = "off"')
    checked = subprocess.run(
        [*gateway.command()[:1], "check", gateway.file], capture_output=True, text=True
    )
    assert checked.returncode != 0
    assert checked.stderr.count("early data is off for the whole server") == 3
    assert 'set `early_data` of [server] to "safe", "hold" or "all"' in checked.stderr
