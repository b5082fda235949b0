"""Certificates that a tower application orders from Pebble (example `acme` of the crate `server`)."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request

import pytest
from curl_cffi import CurlOpt

from harness.clients import curl
from harness.pebble import CLEAR_PORT, TLS_PORT
from harness.server import server_example
from harness.waiting import eventually

NAME = "app.pronghorn.test"


@pytest.fixture
def serve(start, pebble, tmp_path):
    def run(*flags):
        tls, clear = pebble.listen
        command = [server_example("acme"), "--host", NAME, "--agree", "--state", tmp_path / "state"]
        command += ["--listen", tls, "--listen-clear", clear.removeprefix("http://")]
        command += ["--directory", pebble.directory, "--trust", pebble.identity.ca, *flags]
        return start(command, listeners=2)

    return run


def fetch(pebble, protocol: str):
    with curl.session(pebble.root()) as session:
        session.curl_options[CurlOpt.RESOLVE] = [f"{NAME}:{TLS_PORT}:{pebble.address}"]
        return curl.ask(session, protocol, f"https://{NAME}:{TLS_PORT}/")


def has_certificate(server) -> bool:
    return any(f"{NAME} has a certificate" in line for line in server.lines)


def test_application_orders_its_certificate_and_keeps_it(serve, pebble):
    pebble.start()
    server = serve()
    eventually("a certificate", lambda: has_certificate(server))
    for protocol in curl.VERSIONS:
        answer = fetch(pebble, protocol)
        assert (answer.protocol, answer.text()) == (protocol, "hello\n")
    server.terminate()
    assert server.wait() == 0
    again = serve()
    assert fetch(pebble, "HTTP/3").text() == "hello\n"
    assert not has_certificate(again)
    assert (pebble.orders, pebble.accounts) == (1, 1)


def test_authority_that_reaches_only_port_80_gets_its_proof(serve, pebble):
    nobody_listens = TLS_PORT + 1
    pebble.start(tls_port=nobody_listens)
    server = serve()
    # After a failure the next challenge is tried ten seconds later.
    eventually("a certificate", lambda: has_certificate(server), 60)
    assert any("tls-alpn-01" in line and "next attempt" in line for line in server.lines)
    assert fetch(pebble, "HTTP/2").text() == "hello\n"
    # Everything but the proof is redirected, an unknown token too.
    for path in ("/", "/.well-known/acme-challenge/unknown"):
        request = urllib.request.Request(
            f"http://{pebble.address}:{CLEAR_PORT}{path}", headers={"host": NAME}
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.build_opener(NoRedirect).open(request, timeout=20)
        assert refused.value.code == 308
        assert refused.value.headers["location"] == f"https://{NAME}:{TLS_PORT}{path}"


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def test_server_that_ends_during_an_order_ends_regularly(serve, pebble):
    """The authority is slow, so that there is an order at the end."""
    pebble.start(PEBBLE_VA_NOSLEEP="0", PEBBLE_VA_SLEEPTIME="20")
    server = serve()
    eventually("an order", lambda: pebble.orders)
    server.terminate()
    assert server.wait() == 0


def test_settings_that_cannot_work_end_the_application_with_their_reason(tmp_path):
    state = ["--state", tmp_path / "state"]
    nobody_listens = ["--directory", "https://127.0.0.1:9/dir"]
    for flags, reasons in [
        (["--host", "a.pronghorn.test"], ["requires agreement to the terms of service"]),
        (["--host", "192.0.2.1", "--agree"], ["ACME certificates need a host name"]),
        (["--host", "*.b", "--agree"], ["a wildcard certificate cannot be ordered"]),
        (["--host", "192.0.2.1"], ["2 errors", "Acme::terms_agreed", "need a host name"]),
    ]:
        command = [server_example("acme"), *flags, *state, *nobody_listens]
        command += ["--listen", "127.0.0.1:0", "--listen-clear", "127.0.0.1:0"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 1
        assert all(reason in ended.stderr for reason in reasons), ended.stderr
