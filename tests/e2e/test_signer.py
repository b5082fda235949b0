"""`pronghorn signer`: an independent client gets valid signatures, and only those it may have."""

from __future__ import annotations

import hashlib
import re
import signal
import socket
import ssl
import subprocess

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, utils

from harness import keyless
from harness.admin import UnixConnection, ask, metrics
from harness.process import Process
from harness.signer import Signer, Token

DIGEST = hashlib.sha256(b"message").digest()
SHA256 = utils.Prehashed(hashes.SHA256())


@pytest.fixture
def files(tmp_path) -> Signer:
    return Signer(tmp_path)


@pytest.fixture
def run():
    started: list[Process] = []

    def run(command, **options) -> tuple[Process, int]:
        process = Process(command, **options)
        started.append(process)
        [match] = process.wait_for_lines(r"^listening on \S+:(\d+)$")
        process.wait_for_lines(r"^serving ")
        return process, int(match[1])

    yield run
    for process in started:
        process.stop()
        assert not any("panicked" in line for line in process.lines), process.lines


def test_signatures_of_each_kind_of_key_verify(files, run):
    _, port = run(files.command(files.config()))
    client = files.connect(port)
    publics = {name: key.public_key() for name, key in files.keys.items()}
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
    requests = [
        ("rsa", keyless.RSA_PSS_SIGN_SHA256, (pss, SHA256)),
        ("rsa", keyless.RSA_SIGN_SHA256, (padding.PKCS1v15(), SHA256)),
        ("p256", keyless.ECDSA_SIGN_SHA256, (ec.ECDSA(SHA256),)),
        ("p384", keyless.ECDSA_SIGN_SHA256, (ec.ECDSA(SHA256),)),
    ]
    # All at once, to be answered in any order.
    for number, (name, opcode, _) in enumerate(requests):
        client.send(number, opcode, DIGEST, keyless.ski(publics[name]))
    answers = {answer.number: answer for answer in (client.receive() for _ in requests)}
    for number, (name, _, how) in enumerate(requests):
        assert answers[number].opcode == keyless.RESPONSE, name
        publics[name].verify(answers[number].payload, DIGEST, *how)
        with pytest.raises(InvalidSignature):
            publics[name].verify(answers[number].payload, bytes(32), *how)
    digest = hashlib.sha384(b"message").digest()
    answer = client.ask(9, keyless.ECDSA_SIGN_SHA384, digest, keyless.ski(publics["p384"]))
    publics["p384"].verify(answer.payload, digest, ec.ECDSA(utils.Prehashed(hashes.SHA384())))


def test_ping_is_answered_with_its_data(files, run):
    _, port = run(files.command(files.config()))
    answer = files.connect(port).ask(5, keyless.PING, b"data")
    assert (answer.number, answer.opcode, answer.payload) == (5, keyless.PONG, b"data")


def test_client_gets_only_its_keys(files, run):
    _, port = run(files.command(files.config()))
    client = files.connect(port, "other")
    for name, opcode in (("p256", keyless.RESPONSE), ("p384", keyless.ERROR)):
        key = keyless.ski(files.keys[name].public_key())
        answer = client.ask(1, keyless.ECDSA_SIGN_SHA256, DIGEST, key)
        assert answer.opcode == opcode
    assert answer.payload == bytes([keyless.KEY_NOT_FOUND])


def test_client_that_is_not_on_the_list_is_denied(files, run):
    process, port = run(files.command(files.config()))
    with pytest.raises((ssl.SSLError, EOFError, ConnectionResetError)):
        files.connect(port, "stranger").ask(1, keyless.PING)
    process.wait_for_lines("the TLS handshake failed: .*ApplicationVerificationFailure")


def test_client_without_a_certificate_is_denied(files, run):
    process, port = run(files.command(files.config()))
    context = ssl.create_default_context(cafile=files.folder / "ca.pem")
    with socket.create_connection(("127.0.0.1", port), timeout=30) as tcp:
        # With TLS 1.3 the client learns it when it reads.
        tls = context.wrap_socket(tcp, server_hostname="localhost")
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            tls.recv(1)
    process.wait_for_lines("the TLS handshake failed: .*peer sent no certificates")


def test_tls_1_2_is_accepted(files, run):
    _, port = run(files.command(files.config()))
    context = ssl.create_default_context(cafile=files.folder / "ca.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.folder / "gateway.pem", files.folder / "gateway-key.pem")
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as tcp,
        context.wrap_socket(tcp, server_hostname="localhost") as tls,
    ):
        tls.sendall(keyless.message(1, keyless.PING))
        assert tls.recv(8)[4:] == bytes([0, 0, 0, 1])


def test_metrics_count_signatures_and_refusals(files, run):
    _, port = run(files.command(files.config()))
    client = files.connect(port)
    key = keyless.ski(files.keys["p256"].public_key())
    for number in range(3):
        assert client.ask(number, keyless.ECDSA_SIGN_SHA256, DIGEST, key).payload
    client.ask(7, keyless.PING)
    assert client.ask(8, 0x01, bytes(256), key).payload == bytes([keyless.BAD_OPCODE])
    values = metrics(files.folder / "admin.sock")
    assert values['pronghorn_signer_signatures_total{key="p256"}'] == 3
    assert values['pronghorn_signer_signatures_total{key="rsa"}'] == 0
    assert values["pronghorn_signer_requests_total"] == 4
    assert values["pronghorn_signer_pings_total"] == 1
    assert values["pronghorn_signer_connections_open"] == 1
    assert values['pronghorn_signer_requests_refused_total{code="bad_opcode"}'] == 1
    assert values["pronghorn_signer_sign_seconds_total"] > 0
    status, _ = ask(UnixConnection(files.folder / "admin.sock"), "GET", "/status")
    assert status == 404


def test_sigterm_closes_connections_and_ends_with_0(files, run):
    process, port = run(files.command(files.config()))
    client = files.connect(port)
    assert client.ask(1, keyless.PING).opcode == keyless.PONG
    process.terminate()
    assert client.is_closed()
    assert process.wait() == 0
    process.wait_for_lines("shutting down: answering what is in flight")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=30)


def test_requests_before_sigterm_are_answered(files, run):
    process, port = run(files.command(files.config()))
    client = files.connect(port)
    key = keyless.ski(files.keys["rsa"].public_key())
    assert client.ask(1000, keyless.PING).opcode == keyless.PONG
    for number in range(200):
        client.send(number, keyless.RSA_PSS_SIGN_SHA256, DIGEST, key)
    process.terminate()
    answers = [client.receive() for _ in range(200)]
    assert {answer.opcode for answer in answers} == {keyless.RESPONSE}
    assert {answer.number for answer in answers} == set(range(200))
    assert client.is_closed()
    assert process.wait() == 0


def check(files: Signer, config: str, *flags: str) -> tuple[int, str]:
    command = [str(part) for part in files.command(config, *flags)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr.replace(f"{files.folder}/", "")


def test_check_reads_everything_and_does_not_serve(files):
    assert check(files, files.config(), "--check") == (
        0,
        "signer.toml: 3 keys, 2 clients: no errors\n",
    )


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ('cert = "localhost.pem"', 'certs = "x"', 65, "signer.toml:2:1: unknown field `certs`"),
        ('"rsa-key.pem"', '"none.pem"', 66, 'signer.toml:10:7: key "rsa": none.pem: No such file'),
        (
            '"rsa-key.pem"',
            '"ca.pem"',
            65,
            'signer.toml:10:7: key "rsa": ca.pem: contains no usable',
        ),
        (
            'keys = ["p256"]',
            'keys = ["p255"]',
            65,
            'unknown key "p255"; [keys] has p256, p384, rsa',
        ),
        ('"unix:admin.sock"', '"0.0.0.0:1"', 65, "the admin API cannot listen on 0.0.0.0:1; use a"),
        (
            '"unix:admin.sock"',
            '"127.0.0.1:0"',
            65,
            "listens on a port and has no token; set `token`",
        ),
        ('"ca.pem"', '"rsa-key.pem"', 65, "rsa-key.pem: contains no certificate in PEM form"),
        (
            "[keys]",
            "[limits]\nrequests = 0\n[keys]",
            65,
            "`requests` in [limits] is 0; set it to 1",
        ),
    ],
)
def test_bad_configuration_is_one_line_that_says_what_to_do(files, old, new, code, message):
    config = files.config()
    assert old in config
    returned, text = check(files, config.replace(old, new, 1))
    assert (returned, text.count("\n")) == (code, 1), text
    assert text.startswith("error: signer.toml"), text
    assert message in text


def test_used_port_is_reported(files, run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        returned, text = check(files, files.config().replace("127.0.0.1:0", f"127.0.0.1:{port}"))
    assert returned == 69
    assert re.search(rf"cannot listen on 127.0.0.1:{port}: .*; stop the process", text), text


def test_interrupt_ends_like_sigterm(files, run):
    process, _ = run(files.command(files.config()))
    process.popen.send_signal(signal.SIGINT)
    assert process.wait() == 0


def test_hang_up_does_not_end_it(files, run):
    process, port = run(files.command(files.config()))
    process.popen.send_signal(signal.SIGHUP)
    process.wait_for_lines("SIGHUP does not reload the configuration; restart the signer")
    assert files.connect(port).ask(1, keyless.PING).opcode == keyless.PONG


@pytest.fixture
def token(files) -> Token:
    return Token(files.folder)


def test_key_in_a_security_module_signs(files, run, token):
    config = files.config().replace("[keys]\n", f'[keys]\nhsm = "{token.uri()}"\n')
    _, port = run(files.command(config), env=token.env)
    key = keyless.ski(token.public)
    answer = files.connect(port).ask(1, keyless.ECDSA_SIGN_SHA256, DIGEST, key)
    assert answer.opcode == keyless.RESPONSE
    token.public.verify(answer.payload, DIGEST, ec.ECDSA(SHA256))
