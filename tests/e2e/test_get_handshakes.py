"""Failed handshakes of `pronghorn get`: messages about names, certificates and silence."""

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
    """Returns the one line of a failing `pronghorn get` or `load`."""

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
    """Receives datagrams and sends nothing, like a firewall that drops them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        yield udp


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_server_on_tcp_only_is_reported_without_waiting(fails, identity, silent_over_udp, version):
    with CountingServer(version, identity) as server:
        silent_over_udp.bind(("127.0.0.1", server.port))
        says = fails("--http", "3", f"{server.origin}/", code=UNAVAILABLE)
        assert server.counts.requests == 0
    assert f"127.0.0.1:{server.port} does not answer over UDP, but does over TCP" in says
    assert "firewall" in says
    assert "--http 2" in says


def test_untrusted_certificate_over_tcp_still_shows_that_the_server_is_up(
    fails, identity, silent_over_udp
):
    with CountingServer("2", identity) as server:
        silent_over_udp.bind(("127.0.0.1", server.port))
        says = fails(
            "--http",
            "3",
            "--connect-to",
            f"127.0.0.1:{server.port}",
            "https://other.test/",
            code=UNAVAILABLE,
        )
    assert "over TCP" in says


def test_port_silent_over_tcp_too_times_out(fails, silent_over_udp):
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        port = tcp.getsockname()[1]
        silent_over_udp.bind(("127.0.0.1", port))
        says = fails("--http", "3", "--timeout", "5", f"https://127.0.0.1:{port}/", code=TIMED_OUT)
    assert "--timeout" in says


HERE = '[[sites.routes]]\nrespond = "here"\n'
OFF_AND_ON = SITE + "http3 = false\n" + HERE + '[[sites]]\nhosts = ["on.test"]\n{tls}\n' + HERE


@pytest.mark.parametrize("host", ["localhost", "unknown.test"])
@pytest.mark.parametrize("command", ["get", "load"])
def test_site_without_http3_is_not_a_certificate_error(
    fails, start, gateway: Gateway, host, command
):
    gateway.write(OFF_AND_ON)
    server = start(gateway.command())
    at = ["--connect-to", f"127.0.0.1:{server.port}", f"https://{host}:{server.port}/"]
    says = fails("--http", "3", *at, code=PROTOCOL, command=command)
    assert "--cacert" not in says
    assert "--http" in says
    assert "no site " in says
    if command == "get":
        assert f"serves no site {host} over HTTP/3" in says


@pytest.mark.parametrize(
    "alert", [ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME, ssl.ALERT_DESCRIPTION_ACCESS_DENIED]
)
def test_name_rejected_by_the_server_over_tcp_is_not_a_certificate_error(fails, identity, alert):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.cert, identity.key)
    context.sni_callback = lambda *_: alert

    def answer(connection: socket.socket) -> None:
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(connection, server_side=True)

    with listening(answer) as address:
        says = fails("--connect-to", address, "https://localhost/", code=PROTOCOL)
    assert f"{address} has no certificate for localhost" in says
    assert "--cacert" not in says


@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_name_outside_the_certificate_is_not_an_authority_error(fails, identity, version):
    with CountingServer(version, identity) as server:
        at = ["--connect-to", f"127.0.0.1:{server.port}", "https://other.test/"]
        says = fails("--http", version, *at, code=PROTOCOL)
    assert 'not valid for name "other.test"' in says
    assert "use a name that the certificate covers" in says
    assert "--cacert" not in says
