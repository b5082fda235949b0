"""Certificates that `pronghorn run` orders from Pebble."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import stat
import subprocess
import urllib.error
import urllib.request
from dataclasses import replace

import pytest
from aioquic.asyncio import connect
from aioquic.quic.configuration import QuicConfiguration
from cryptography import x509
from curl_cffi import CurlOpt

from harness.acme_proxy import PROBLEM, Answer, proxied
from harness.admin import UnixConnection, ask, metrics
from harness.clients import curl
from harness.pebble import CLEAR_PORT, TLS_PORT, certificates_of, is_whole
from harness.process import Process
from harness.server import pronghorn
from harness.waiting import eventually

NAME = "one.pronghorn.test"


@pytest.fixture
def serve(start, gateway, pebble):
    """Starts a server whose sites have these names, and which orders their certificates."""

    def run(*names: str, challenges: tuple[str, ...] = (), more: str = ""):
        write(gateway, pebble, names, challenges, more)
        return start(gateway.command(), listeners=2)

    return run


def write(gateway, pebble, names, challenges=(), more="", acme="") -> None:
    sites = "".join(
        f'[[sites]]\nhosts = ["{name}"]\ntls = "acme"\n[[sites.routes]]\nrespond = "{name}"\n'
        for name in names
    )
    gateway.write(
        pebble.settings(*challenges, more=acme) + sites + more,
        server='state_dir = "state"',
        listen=pebble.listen,
        workers=2,
    )


def fetch(pebble, protocol: str, name: str = NAME):
    with curl.session(pebble.root()) as session:
        session.curl_options[CurlOpt.RESOLVE] = [f"{name}:{TLS_PORT}:{pebble.address}"]
        return curl.ask(session, protocol, f"https://{name}:{TLS_PORT}/")


def shown(pebble, name: str = NAME) -> x509.Certificate:
    """Returns the certificate that is served for the name, whoever issued it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((pebble.address, TLS_PORT), timeout=20) as tcp,
        context.wrap_socket(tcp, server_hostname=name) as tls,
    ):
        return x509.load_der_x509_certificate(tls.getpeercert(binary_form=True))


def status_of(gateway, name: str = NAME) -> dict:
    _, status = ask(UnixConnection(gateway.folder / "state/admin.sock"), "GET", "/status")
    return next(one for one in status["certificates"] if one["hosts"] == [name])


@pytest.mark.parametrize("challenge", ["tls-alpn-01", "http-01"])
def test_ordered_certificate_is_served_over_each_protocol(serve, gateway, pebble, challenge):
    pebble.start()
    server = serve(NAME, "two.pronghorn.test", challenges=(challenge,))
    server.wait_for_lines("has a certificate, valid until", 2)
    for protocol in curl.VERSIONS:
        response = fetch(pebble, protocol)
        assert (response.status, response.body, response.protocol) == (200, NAME.encode(), protocol)
        assert fetch(pebble, protocol, "two.pronghorn.test").body == b"two.pronghorn.test"
    assert pebble.orders == 2
    # Stored files and folders are accessible to their owner only.
    kept = certificates_of(gateway.folder / "state")
    assert kept.keys() == {NAME, "two.pronghorn.test"}
    for path, _, files in os.walk(gateway.folder / "state/acme"):
        modes = [
            stat.S_IMODE(os.stat(os.path.join(path, file)).st_mode)
            for file in files
            if not file.endswith(".lock")
        ]
        assert set(modes) <= {0o600}, files
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    expiry = shown(pebble).not_valid_after_utc.timestamp()
    series = metrics(gateway.folder / "state/admin.sock")
    assert series[f'pronghorn_certificate_expiry_time_seconds{{host="{NAME}"}}'] == expiry
    assert series[f'pronghorn_certificate_order_failures{{host="{NAME}"}}'] == 0
    # Other clear-text requests are still redirected, including those for unknown challenge tokens.
    for path in ("/", "/.well-known/acme-challenge/none"):
        request = urllib.request.Request(
            f"http://{pebble.address}:{CLEAR_PORT}{path}", headers={"host": NAME}
        )
        opener = urllib.request.build_opener(NoRedirect)
        with pytest.raises(urllib.error.HTTPError) as refused:
            opener.open(request, timeout=20)
        assert (refused.value.code, refused.value.headers["location"]) == (
            308,
            f"https://{NAME}:{TLS_PORT}{path}",
        )


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def test_restart_needs_no_order_and_no_authority(serve, start, gateway, pebble):
    pebble.start()
    server = serve(NAME)
    server.wait_for_lines("has a certificate, valid until")
    before, root = shown(pebble), pebble.root()
    server.kill()
    pebble.process.kill()
    again = start(gateway.command(), listeners=2)
    assert shown(pebble) == before
    again.terminate()
    assert again.wait() == 0, again.lines
    pebble.start()
    again = start(gateway.command(), listeners=2)
    assert shown(pebble) == before
    # The authority was only asked for renewal information, if at all.
    assert eventually("the next renewal is known", lambda: status_of(gateway)["order"]["next"])
    assert (pebble.orders, root.exists()) == (0, True)


def test_server_killed_during_an_order_gets_a_certificate_after_its_restart(
    serve, start, gateway, pebble
):
    # The authority is slow, so that there is time to kill the server.
    pebble.start(PEBBLE_VA_NOSLEEP="0", PEBBLE_VA_SLEEPTIME="3")
    server = serve(NAME)
    for line in ("Added order", "Pulled a task from the Tasks queue", "Issued certificate serial"):
        pebble.process.wait_for_lines(line)
        server.kill()
        assert all(is_whole(file) for file in certificates_of(gateway.folder / "state").values())
        server = start(gateway.command(), listeners=2)
    server.kill()
    (folder,) = (gateway.folder / "state").glob("acme/*/certificates")
    # A temporary file as a killed server leaves it before the rename, and one of another program.
    left, other = folder / ".writing-AbCdEf.tmp", folder / "notes.tmp"
    left.write_text("half")
    other.write_text("whole")
    server = start(gateway.command(), listeners=2)
    eventually("there is a certificate", lambda: status_of(gateway)["valid_until"], seconds=60)
    assert fetch(pebble, "HTTP/2").status == 200
    assert (left.exists(), other.exists()) == (False, True)
    # The server may be writing another file at the moment.
    eventually("no temporary file", lambda: not list(folder.parent.glob("**/.writing-*")))


def test_certificate_is_renewed_while_clients_are_served(serve, gateway, pebble):
    # Renewed when a third of its lifetime is left, which must be enough for an order on a busy
    # machine.
    pebble.start(validity=60)
    server = serve(NAME)
    server.wait_for_lines("has a certificate, valid until")
    first = shown(pebble).serial_number
    root = pebble.root()

    def is_renewed() -> bool:
        with curl.session(root) as session:
            session.curl_options[CurlOpt.RESOLVE] = [f"{NAME}:{TLS_PORT}:{pebble.address}"]
            assert curl.ask(session, "HTTP/3", f"https://{NAME}:{TLS_PORT}/").status == 200
        return shown(pebble).serial_number != first

    eventually("another certificate is served", is_renewed, seconds=100)
    server.wait_for_lines("has a certificate, valid until", 2)
    assert not [line for line in server.lines if "error" in line]


def test_unavailable_authority_does_not_block_other_sites(serve, gateway, pebble, identity):
    other = f'[[sites]]\nhosts = ["localhost", "127.0.0.1"]\n{gateway.tls}\n[[sites.routes]]\nrespond = "other"\n'
    server = serve(NAME, more=other)
    line = rf"error: no certificate for {NAME}: request to the authority failed: .*; next attempt in \d+s"
    server.wait_for_lines(line)
    with pytest.raises(ssl.SSLError, match="access denied"):
        shown(pebble)
    assert shown(pebble, "localhost").serial_number > 0
    assert status_of(gateway)["valid_until"] is None
    assert status_of(gateway)["order"]["failures"] >= 1
    pebble.start()
    server.wait_for_lines("has a certificate, valid until", seconds=90)
    assert fetch(pebble, "HTTP/3").status == 200
    eventually("no failure since", lambda: status_of(gateway)["order"]["failures"] == 0)


def test_names_back_off_together_when_the_authority_does_not_respond(serve, pebble):
    server = serve(*(f"name-{number}.pronghorn.test" for number in range(40)))
    lines = server.wait_for_lines(r"next attempt in (\d+)s, for all names", 2)
    # One line for each attempt, and the delays grow.
    waits = [int(line[1]) for line in lines]
    assert 5 <= waits[0] < waits[1], server.lines
    assert len([line for line in server.lines if "error" in line]) == 2, server.lines


def test_rejected_challenge_is_logged_and_the_other_one_is_tried(serve, gateway, pebble):
    # No server listens where the authority looks first.
    pebble.start(tls_port=1)
    server = serve(NAME)
    line = rf"error: no certificate for {NAME}: tls-alpn-01: the authority says: .*; next attempt in 1\ds"
    server.wait_for_lines(line)
    assert pebble.orders == 1
    # A restart does not retry at once: the rejection is remembered.
    server.kill()
    again = serve(NAME)
    eventually("the next attempt is known", lambda: status_of(gateway)["order"]["next"])
    assert status_of(gateway)["order"]["failures"] == 1
    again.wait_for_lines("has a certificate, valid until", seconds=90)
    assert pebble.orders == 2
    refused = (gateway.folder / "state").glob
    eventually(
        "the rejection is forgotten", lambda: not list(refused("acme/*/certificates/*.refused"))
    )


def retry(gateway, name: str) -> subprocess.CompletedProcess[str]:
    command = [pronghorn(), "acme", "retry", name, "-c", gateway.file]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_failed_order_is_retried_on_the_operators_command(serve, gateway, pebble, tmp_path):
    with proxied(pebble) as proxy:
        pebble.start()
        # No order would be made for hours, with or without restarts.
        problem = {"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many orders"}
        refusal = Answer(429, [PROBLEM, ("retry-after", "18000")], json.dumps(problem).encode())
        proxy.answer = lambda _, path: refusal if path == "/order-plz" else None
        server = serve(NAME, "two.pronghorn.test")
        server.wait_for_lines("error: no certificate for .*next attempt in 5h", 2)
        proxy.answer = lambda *_: None
        done = retry(gateway, NAME)
        assert done.returncode == 0, done.stderr
        assert f"ordering the certificate of {NAME} again" in done.stdout
        server.wait_for_lines(f"{NAME} has a certificate, valid until", seconds=90)
        # The other name still waits.
        assert pebble.orders == 1
        assert status_of(gateway, "two.pronghorn.test")["order"]["failures"] == 1
        eventually("no failure since", lambda: status_of(gateway)["order"]["failures"] == 0)
        for name, says in (
            (NAME, "no failed order"),
            ("none.test", 'it has no site with tls = "acme"'),
        ):
            refused = retry(gateway, name)
            assert (refused.returncode, refused.stdout) == (69, "")
            assert says in refused.stderr


def test_failed_retry_backs_off_as_after_a_first_failure(serve, gateway, pebble):
    with proxied(pebble) as proxy:
        pebble.start()
        problem = {"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many orders"}
        refusal = Answer(429, [PROBLEM], json.dumps(problem).encode())
        proxy.answer = lambda _, path: refusal if path == "/order-plz" else None
        server = serve(NAME)
        for count in (1, 2, 3):
            server.wait_for_lines(r"too many orders \(rateLimited\); next attempt in [56]m", count)
            assert len(proxy.asked("/order-plz")) == count
            eventually("it is known", lambda: status_of(gateway)["order"]["failures"] == 1)
            assert retry(gateway, NAME).returncode == 0


def test_reload_with_changed_acme_settings_orders_at_once(serve, gateway, pebble):
    # No server listens where the authority looks first, and there is no other challenge.
    pebble.start(tls_port=1)
    server = serve(NAME, challenges=("tls-alpn-01",))
    server.wait_for_lines(
        f"error: no certificate for {NAME}: tls-alpn-01: .*; next attempt in [56]m"
    )
    write(gateway, pebble, [NAME], ("http-01",))
    server.popen.send_signal(1)
    server.wait_for_lines("has a certificate, valid until", seconds=90)


def test_error_in_the_response_to_a_challenge_names_the_challenge(serve, pebble):
    """A validation that fails before the authority has responded."""

    def failed(path: str, answer: Answer) -> Answer:
        if not path.startswith("/chalZ/"):
            return answer
        error = {"type": "urn:ietf:params:acme:error:connection", "detail": "no route"}
        challenge = json.loads(answer.body) | {"status": "invalid", "error": error}
        return replace(answer, body=json.dumps(challenge).encode())

    with proxied(pebble) as proxy:
        pebble.start()
        proxy.change = failed
        server = serve(NAME, challenges=("http-01",))
        server.wait_for_lines(
            rf"error: no certificate for {NAME}: http-01: the authority says: no route "
            r"\(connection\); next attempt in [56]m"
        )


def test_repeatedly_rejected_nonces_lead_to_a_backoff(serve, gateway, pebble):
    pebble.start(PEBBLE_WFE_NONCEREJECT="100")
    server = serve(NAME)
    server.wait_for_lines(
        rf"error: no certificate for {NAME}: the authority says: .*\(badNonce\); next attempt in [56]s"
    )
    server.wait_for_lines(r"\(badNonce\); next attempt in 1\ds")
    assert pebble.orders == 0


def test_some_rejected_nonces_are_retried(serve, pebble):
    pebble.start(PEBBLE_WFE_NONCEREJECT="15")
    server = serve(NAME)
    server.wait_for_lines("has a certificate, valid until", seconds=90)


def test_reload_orders_for_new_names_and_keeps_existing_certificates(serve, gateway, pebble):
    pebble.start()
    server = serve(NAME)
    server.wait_for_lines("has a certificate, valid until")
    before = shown(pebble)
    write(gateway, pebble, [NAME, "new.pronghorn.test"])
    server.popen.send_signal(1)
    server.wait_for_lines("new.pronghorn.test has a certificate")
    assert (shown(pebble), pebble.orders) == (before, 2)
    write(gateway, pebble, ["new.pronghorn.test"])
    server.popen.send_signal(1)
    server.wait_for_lines("serving 1 site ", 2)
    assert fetch(pebble, "HTTP/2", "new.pronghorn.test").status == 200
    assert pebble.orders == 2


def test_tls_alpn_challenge_is_answered_over_tcp_for_pending_names_only(serve, pebble):
    pebble.start()
    server = serve(NAME)
    server.wait_for_lines("has a certificate, valid until")
    context = ssl.create_default_context(cafile=pebble.root())
    context.set_alpn_protocols(["acme-tls/1"])
    with (
        socket.create_connection((pebble.address, TLS_PORT), timeout=20) as tcp,
        pytest.raises(ssl.SSLError, match="access denied"),
    ):
        context.wrap_socket(tcp, server_hostname=NAME)

    async def over_quic() -> None:
        configuration = QuicConfiguration(
            is_client=True, alpn_protocols=["acme-tls/1"], server_name=NAME
        )
        configuration.load_verify_locations(cafile=str(pebble.root()))
        async with connect(pebble.address, TLS_PORT, configuration=configuration):
            pass

    with pytest.raises(ConnectionError):
        asyncio.run(over_quic())


def test_unwritable_folder_is_reported_at_start(gateway, pebble, tmp_path):
    (tmp_path / "state").write_text("no folder")
    write(gateway, pebble, [NAME])
    process = Process(gateway.command())
    assert process.wait() != 0
    assert "state_dir" in process.lines[-1] or "state_dir" in process.lines[-2], process.lines
    process.stop()


KEYS = {
    "kid-1": "bm9ib2R5LWtub3dzLXRoaXMta2V5LWFuZC1pdC1pcy1sb25n",
    "kid-2": "YW5vdGhlci1rZXktdGhhdC1pcy1hcy1sb25nLWFzLXRoYXQ_-w",
}
"""Account keys that were created elsewhere, in base64url with and without its special characters.
"""


def with_external(gateway, pebble, name: str, external: str) -> None:
    """Returns a configuration that orders with an account that was created elsewhere."""
    site = f'[[sites]]\nhosts = ["{name}"]\ntls = "acme"\n[[sites.routes]]\nrespond = "hi"\n'
    settings = pebble.settings(more=external)
    gateway.write(settings + site, server='state_dir = "state"', listen=pebble.listen)


def test_external_account_is_bound_once(start, gateway, pebble):
    pebble.start(external=KEYS)
    # Some authorities show the key with padding.
    key = KEYS["kid-1"] + "=" * (-len(KEYS["kid-1"]) % 4)
    (gateway.folder / "eab-key").write_text(f"{key}\n")
    by_file = 'external_account = { id = "kid-1", key = "${file:eab-key}" }'
    with_external(gateway, pebble, NAME, by_file)
    server = start(gateway.command(), listeners=2)
    server.wait_for_lines("has a certificate, valid until")
    pebble.process.wait_for_lines('newAccount Binding with CA using kid "kid-1"')
    assert fetch(pebble, "HTTP/3").status == 200
    # A new order uses the existing account, whichever external key is configured.
    (gateway.folder / "eab-key").write_text(KEYS["kid-2"])
    with_external(gateway, pebble, "two.pronghorn.test", by_file)
    server.popen.send_signal(1)
    server.wait_for_lines("two.pronghorn.test has a certificate")
    assert pebble.accounts == 1
    # A different account.
    with_external(gateway, pebble, "three.pronghorn.test", by_file.replace("kid-1", "kid-2"))
    server.popen.send_signal(1)
    server.wait_for_lines("three.pronghorn.test has a certificate")
    pebble.process.wait_for_lines('newAccount Binding with CA using kid "kid-2"')
    assert pebble.accounts == 2
    assert not [
        line
        for line in server.lines
        if "error" in line or any(key in line for key in KEYS.values())
    ]
    for file in (gateway.folder / "state").glob("acme/*/account*.json"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("external", "says"),
    [
        ("", r"externalAccountBinding.*\(externalAccountRequired\)"),
        (
            'external_account = { id = "kid-1", key = "KEY-2" }',
            r"verification error.*\(unauthorized\)",
        ),
        ('external_account = { id = "kid-3", key = "KEY-2" }', r"not known.*\(unauthorized\)"),
    ],
    ids=["none", "another-key", "unknown"],
)
def test_rejected_account_is_logged_and_nothing_is_ordered(start, gateway, pebble, external, says):
    pebble.start(external=KEYS)
    with_external(gateway, pebble, NAME, external.replace("KEY-2", KEYS["kid-2"]))
    server = start(gateway.command(), listeners=2)
    server.wait_for_lines(
        rf"error: no certificate for {NAME}: the authority says: .*{says}; next attempt in 1\ds$"
    )
    assert (
        pebble.orders,
        pebble.accounts,
        list((gateway.folder / "state").glob("acme/*/account*.json")),
    ) == (0, 0, [])
    assert not [line for line in server.lines if any(key in line for key in KEYS.values())]


def test_changed_email_is_sent_to_the_authority_once(start, gateway, pebble):
    pebble.start()
    with proxied(pebble) as proxy:

        def told() -> list[list[str]]:
            of_account = ("/sign-me-up", "/my-account/")
            return [
                content["contact"]
                for path, content in proxy.contents
                if path.startswith(of_account)
            ]

        def known() -> list[str]:
            return [
                file.read_text()
                for file in (gateway.folder / "state").glob("acme/*/account*.contact")
            ]

        write(gateway, pebble, [NAME], acme='email = "one@pronghorn.test"')
        server = start(gateway.command(), listeners=2)
        server.wait_for_lines("has a certificate, valid until")
        assert told() == [["mailto:one@pronghorn.test"]]
        # Each of these asks for renewal information, which needs the account.
        expected = told()
        for address in ("two@pronghorn.test", None, "three@pronghorn.test"):
            write(gateway, pebble, [NAME], acme=f'email = "{address}"' if address else "")
            server.popen.send_signal(1)
            expected.append([f"mailto:{address}"] if address else [])
            assert eventually("the account is updated", lambda: len(told()) == len(expected))
            # A server that stops before it gets the response would send the update again.
            assert eventually(
                "the response is stored",
                lambda address=address: known() == ([address] if address else []),
            )
        assert (told(), pebble.accounts) == (expected, 1)
        # Nothing is sent for a known address: neither after a restart nor for another name.
        server.terminate()
        assert server.wait() == 0, server.lines
        write(gateway, pebble, [NAME, "two.pronghorn.test"], acme='email = "three@pronghorn.test"')
        server = start(gateway.command(), listeners=2)
        server.wait_for_lines("two.pronghorn.test has a certificate, valid until")
        assert told() == expected
        # A rejected address does not delay certificates.
        problem = {"type": "urn:ietf:params:acme:error:invalidContact", "detail": "no such domain"}
        refusal = Answer(400, [PROBLEM], json.dumps(problem).encode())
        proxy.answer = lambda _, path: refusal if path.startswith("/my-account/") else None
        write(gateway, pebble, [NAME, "three.pronghorn.test"], acme='email = "four@pronghorn.test"')
        server.popen.send_signal(1)
        server.wait_for_lines("three.pronghorn.test has a certificate, valid until")
        said = r"the authority says: no such domain \(invalidContact\)"
        server.wait_for_lines(f"warning: the authority rejected the new email address: {said}")


PROFILES = {"classic": 7_776_000, "shortlived": 576_000}


@pytest.mark.parametrize("profile", PROFILES)
def test_certificate_uses_the_configured_profile(start, gateway, pebble, profile):
    # Without a profile, this authority picks one at random.
    pebble.start(profiles=PROFILES)
    with_external(gateway, pebble, NAME, f'profile = "{profile}"')
    server = start(gateway.command(), listeners=2)
    server.wait_for_lines("has a certificate, valid until")
    certificate = shown(pebble)
    valid = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert abs(valid.total_seconds() - PROFILES[profile]) <= 1
    assert fetch(pebble, "HTTP/2").status == 200


def test_unknown_profile_is_an_error_that_lists_the_known_ones(start, gateway, pebble):
    pebble.start(profiles=PROFILES)
    with_external(gateway, pebble, NAME, 'profile = "short"')
    server = start(gateway.command(), listeners=2)
    said = 'unknown profile "short": the authority has classic, shortlived'
    server.wait_for_lines(rf"error: no certificate for {NAME}: {said}; next attempt in 1\ds$")
    assert pebble.orders == 0
