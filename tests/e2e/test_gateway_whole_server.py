"""Requests for the server as a whole (OPTIONS *), and for tunnels that no route opens (CONNECT)."""

from __future__ import annotations

import pytest

from harness import fastcgi
from harness.clients.h2_frames import H2Client
from harness.clients.raw_h1 import RawH1
from harness.clients.raw_h3 import RawH3
from harness.clients.spelled import VERSIONS, Speller

RUNS = b"Status: 200\r\nContent-Type: text/plain\r\n\r\nsecret"


@pytest.fixture(params=["files", "respond", "redirect", "proxy", "fastcgi", "layers"])
def routes(request, gateway, up):
    """One route of each kind for every path."""
    (gateway.folder / "www").mkdir()
    (gateway.folder / "www" / "index.html").write_text("secret")
    with fastcgi.application(fastcgi.sent(fastcgi.output(RUNS) + fastcgi.end())) as address:
        route = {
            "files": 'files = "www"',
            "respond": 'respond = "secret"',
            "redirect": 'redirect = "https://other.test{path}"',
            "proxy": f'proxy = "{up.address}"',
            "fastcgi": f'proxy = "{address}"',
            "layers": 'respond = "secret"\nlayers = ["compress"]',
        }[request.param]
        yield f"[[sites.routes]]\n{route}\n"


def ask_for_tunnel(client: Speller) -> tuple[int, bytes]:
    """Sends CONNECT, which has an authority and no path."""
    target = client.origin.partition("://")[2]
    if client.version == "1.1":
        with RawH1(client.origin, client.ca) as raw:
            answer = raw.fetch(target, method="CONNECT")
            return answer.status, answer.body
    fields = [(":method", "CONNECT"), (":authority", target)]
    if client.version == "2":
        with H2Client(client.origin, client.ca) as http2:
            answer = http2.finish(http2.send_fields(fields))
            return answer.status, answer.body
    with RawH3(client.origin, client.ca) as http3:
        answer = http3.open().answer(http3.request(fields))
        return answer.status, answer.body


def test_options_for_the_whole_server_is_answered_by_the_gateway(speak, routes, up):
    client = speak(routes)
    answer = client.ask("*", method="OPTIONS")
    assert (answer.status, answer.body) == (204, b"")
    assert "OPTIONS" in answer.headers["allow"]
    assert up.requests == []


def test_connect_is_501(speak, routes, up):
    status, body = ask_for_tunnel(speak(routes))
    assert (status, body) == (
        501,
        b"CONNECT is not supported: this server is not a forward proxy\n",
    )
    assert up.requests == []


def test_static_server_answers_options_itself(shared_server, ca):
    for version in VERSIONS:
        client = Speller(version, shared_server.origin, ca)
        answer = client.ask("*", method="OPTIONS")
        assert (answer.status, answer.headers["allow"]) == (204, "GET, HEAD")
        assert ask_for_tunnel(client)[0] == 501


@pytest.mark.parametrize("version", ["2", "3"])
def test_extended_connect_without_a_tunnel_is_an_error(start, gateway, ca, routes, version):
    gateway.write('[[sites]]\nhosts = ["*"]\n{tls}\n' + routes)
    client = Speller(version, start(gateway.command()).origin, ca)
    answer = client.ask("/", protocol="websocket", headers=[("sec-websocket-version", "13")])
    # 502: an upstream that answers 200 to the upgrade. 308: a redirect applies to every request.
    assert answer.status in (501, 502, 308)
    assert b"secret" not in answer.body


@pytest.mark.parametrize("status", [200, 204])
@pytest.mark.parametrize("version", ["2", "3"])
def test_2xx_of_an_upstream_opens_no_tunnel(start, gateway, ca, up, version, status):
    gateway.write(f'[[sites]]\nhosts = ["*"]\n{{tls}}\n[[sites.routes]]\nproxy = "{up.address}"\n')
    client = Speller(version, start(gateway.command()).origin, ca)
    assert client.ask(f"/status/{status}", protocol="websocket").status == 502
    assert up.requests == [("GET", f"/status/{status}")]
