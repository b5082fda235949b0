"""`pronghorn get` where a connection does not come about: what it says of names, certificates and silence."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
from collections.abc import Iterator

import pytest

from harness.counting_server import CountingServer
from harness.gateway import SITE, Gateway
from harness.server import pronghorn
from harness.serving import listening

UNAVAILABLE = 69
TIMED_OUT = 75
PROTOCOL = 76


@pytest.fixture
def fails(ca):
    """The one line with which `pronghorn get`, or `load`, fails."""

    def fails(*arguments, code: int, command: str = "get") -> str:
        whole = [str(part) for part in [pronghorn(), command, "--cacert", ca, *arguments]]
        done = subprocess.run(whole, capture_output=True, timeout=100)
        assert done.returncode == code, done.stderr.decode()
        assert done.stdout == b""
        assert re.fullmatch(r"error: [^\n]+\n", done.stderr.decode())
        return done.stderr.decode()

    return fails


@pytest.fixture
def silent_over_udp() -> Iterator[socket.socket]:
    """Takes datagrams and says nothing, as a firewall that drops them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        yield udp


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_server_that_answers_over_tcp_alone_is_not_waited_for(fails, identity, silent_over_udp, version):
    with CountingServer(version, identity) as server:
        silent_over_udp.bind(("127.0.0.1", server.port))
        says = fails("--http", "3", f"{server.origin}/", code=UNAVAILABLE)
        assert server.counts.requests == 0
    assert f"127.0.0.1:{server.port} gives no answer over UDP, but does over TCP" in says
    assert "firewall" in says
    assert "--http 2" in says


def test_server_whose_certificate_over_tcp_is_not_trusted_answers_all_the_same(fails, identity, silent_over_udp):
    with CountingServer("2", identity) as server:
        silent_over_udp.bind(("127.0.0.1", server.port))
        says = fails("--http", "3", "--connect-to", f"127.0.0.1:{server.port}", "https://other.test/", code=UNAVAILABLE)
    assert "over TCP" in says


def test_port_that_is_silent_over_tcp_too_is_waited_for(fails, silent_over_udp):
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        port = tcp.getsockname()[1]
        silent_over_udp.bind(("127.0.0.1", port))
        says = fails("--http", "3", "--timeout", "5", f"https://127.0.0.1:{port}/", code=TIMED_OUT)
    assert "--timeout" in says


HERE = '[[sites.routes]]\nrespond = "here"\n'
OFF_AND_ON = SITE + "http3 = false\n" + HERE + '[[sites]]\nhosts = ["on.test"]\n{tls}\n' + HERE


@pytest.mark.parametrize("host", ["localhost", "unknown.test"])
@pytest.mark.parametrize("command", ["get", "load"])
def test_site_that_is_not_there_over_http3_is_no_matter_of_trust(fails, start, gateway: Gateway, host, command):
    gateway.write(OFF_AND_ON)
    server = start(gateway.command())
    at = ["--connect-to", f"127.0.0.1:{server.port}", f"https://{host}:{server.port}/"]
    says = fails("--http", "3", *at, code=PROTOCOL, command=command)
    assert "--cacert" not in says
    assert "--http" in says
    assert "no site of " in says
    if command == "get":
        assert f"no site of the name {host} over HTTP/3" in says


@pytest.mark.parametrize("alert", [ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME, ssl.ALERT_DESCRIPTION_ACCESS_DENIED])
def test_name_that_a_server_refuses_over_tcp_is_no_matter_of_trust(fails, identity, alert):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.cert, identity.key)
    context.sni_callback = lambda *_: alert

    def answer(connection: socket.socket) -> None:
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(connection, server_side=True)

    with listening(answer) as address:
        says = fails("--connect-to", address, "https://localhost/", code=PROTOCOL)
    assert f"{address} has no certificate for the name localhost" in says
    assert "--cacert" not in says


@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_name_that_the_certificate_lacks_is_no_matter_of_the_authority(fails, identity, version):
    with CountingServer(version, identity) as server:
        at = ["--connect-to", f"127.0.0.1:{server.port}", "https://other.test/"]
        says = fails("--http", version, *at, code=PROTOCOL)
    assert 'not valid for name "other.test"' in says
    assert "ask for a name that the certificate has" in says
    assert "--cacert" not in says
