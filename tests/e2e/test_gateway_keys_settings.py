"""How operators change where `pronghorn run` has its private keys, and which mistakes they see."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from harness.admin import UnixConnection, ask
from harness.gateway import Gateway
from harness.keys import FROM_SIGNER, Client, Edge, der, pending, shown
from harness.server import pronghorn
from harness.unprivileged import copied, open_folder, without_rights
from harness.waiting import DEADLINE_SECONDS, eventually


def reload(edge: Edge) -> tuple[int, dict]:
    return ask(UnixConnection(edge.folder / "state" / "admin.sock"), "POST", "/reload")


# Reloads.


def test_first_slow_key_of_a_reload_does_not_block_the_worker(edge, faulty_signer, run_edge):
    edge.write_key("p256", edge.signer.keys["p256"])
    client = run_edge(["p256-key.pem"])
    with client.h2() as kept:
        assert kept.fetch("/").body == b"elsewhere"
        edge.write(FROM_SIGNER, signers={"vault": [faulty_signer.address]})
        assert reload(edge)[0] == 200
        eventually("the signer is connected", client.is_served)
        faulty_signer.fault = "hold"
        with pending(client) as handshake:
            eventually("a signature waits", lambda: len(faulty_signer.held) == 1)
            assert kept.fetch("/").body == b"elsewhere"
            assert client.fetch("127.0.0.1") == b"here"
            assert asyncio.run(client.fetch_h3("127.0.0.1")) == b"here"
            faulty_signer.release()
            output, _ = handshake.communicate(timeout=DEADLINE_SECONDS)
        assert b"Verify return code: 0 (ok)" in output


def test_reload_changes_the_address_of_a_signer(edge, faulty_signer, signer, run_edge):
    client = run_edge(FROM_SIGNER, signers={"vault": [signer.address]})
    assert client.fetch() == b"elsewhere"
    with client.h2() as kept:
        assert kept.fetch("/").body == b"elsewhere"
        edge.write(FROM_SIGNER, signers={"vault": [faulty_signer.address]}, respond="changed")
        assert reload(edge)[0] == 200
        assert client.fetch() == b"changed"
        assert faulty_signer.requests == 1
        assert kept.fetch("/").body == b"changed"
    # The client of the former signer is gone.
    signer.process.kill()
    assert client.fetch() == b"changed"


def test_reload_rotates_certificate_and_key(edge, faulty_signer, run_edge):
    client = run_edge(FROM_SIGNER, signers={"vault": [faulty_signer.address]})
    assert shown(client.openssl()) == der(edge.leaves["p256"])
    before = edge.leaves["p256"]
    new = ec.generate_private_key(ec.SECP256R1())
    faulty_signer.add(new)
    edge.issue("p256", new)
    assert reload(edge)[0] == 200
    output = client.openssl()
    assert shown(output) == der(edge.leaves["p256"]) != der(before)
    assert "Verify return code: 0 (ok)" in output


def test_replaced_certificate_file_rotates_without_a_reload(edge, faulty_signer, run_edge):
    client = run_edge(FROM_SIGNER, signers={"vault": [faulty_signer.address]})
    # The server that answers this watches its files.
    assert edge.key("signatures_total", "signer:vault") == 0
    new = ec.generate_private_key(ec.SECP256R1())
    faulty_signer.add(new)
    edge.issue("p256", new)
    client.server.wait_for_lines("certificates reloaded: a file has changed")
    assert shown(client.openssl()) == der(edge.leaves["p256"])


def test_invalid_configuration_of_a_reload_changes_nothing(edge, signer, run_edge):
    client = run_edge(FROM_SIGNER, signers={"vault": [signer.address]})
    assert client.fetch() == b"elsewhere"
    edge.write(["signer:other"], signers={"vault": ["127.0.0.1:1"]}, respond="changed")
    status, answer = reload(edge)
    assert (status, "unknown signer" in str(answer)) == (422, True), answer
    assert client.fetch() == b"elsewhere"
    edge.write(["here-key.pem"], respond="changed")
    status, answer = reload(edge)
    assert (status, "does not belong to" in str(answer)) == (422, True), answer
    assert client.fetch() == b"elsewhere"
    assert edge.key("signatures_total", "signer:vault") == 3


def test_reload_keeps_the_counts_of_a_key(edge, signer, run_edge):
    client = run_edge(FROM_SIGNER, signers={"vault": [signer.address]})
    assert client.fetch() == b"elsewhere"
    edge.write(FROM_SIGNER, signers={"vault": [signer.address]}, respond="changed")
    assert reload(edge)[0] == 200
    assert client.fetch() == b"changed"
    assert edge.key("signatures_total", "signer:vault") == 2


def test_sites_with_the_same_certificate_count_together(edge, signer, start):
    edge.write(FROM_SIGNER, signers={"vault": [signer.address]})
    with edge.gateway.file.open("a") as file:
        file.write(
            '[[sites]]\nhosts = ["second.test"]\n'
            'tls = { cert = "p256.pem", keys = ["signer:vault"] }\n'
            '[[sites.routes]]\nrespond = "second"\n'
        )
    client = Client(edge, start(edge.gateway.command()))
    for host in ("localhost", "second.test", "second.test"):
        assert "Verify return code: 0 (ok)" in client.openssl(host=host)
    assert edge.key("signatures_total", "signer:vault") == 3


# Errors of operators.


BOTH = 'key = "p256-key.pem", keys = ["signer:vault"]'


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("keys = ['signer:vault']", BOTH, 65, "a certificate has either `key` or `keys`"),
        ("keys = ['signer:vault']", "keys = []", 65, "missing key of the certificate"),
        (", keys = ['signer:vault']", "", 65, "missing key of the certificate"),
        ("signer:vault", "signer:safe", 65, 'unknown signer "safe"'),
        ("signer:vault", "none.pem", 66, "none.pem: No such file"),
        ("signer:vault", "p256.pem", 65, "p256.pem: contains no usable private key in PEM form"),
        ("signer:vault", "here-key.pem", 65, "the key does not belong to"),
        ("['127.0.0.1:1']", "[]", 65, "missing address of the signer"),
        ("127.0.0.1:1", "127.0.0.1", 65, 'invalid address "127.0.0.1" of a signer: use host:port'),
        ("signer/gateway.pem", "signer/none.pem", 66, "signer/none.pem: No such file"),
        ("signer/ca.pem", "signer/rsa-key.pem", 65, "contains no certificate in PEM form"),
        ("signer/gateway-key.pem", "signer/other-key.pem", 65, "signer/other-key.pem"),
        ('server_name = "localhost"', 'server_name = "a b"', 65, 'invalid server name "a b"'),
        ("p256.pem", "none.pem", 66, "none.pem: No such file"),
    ],
)
def test_wrong_configuration_is_one_error_with_its_place(edge, old, new, code, message):
    edge.write(FROM_SIGNER, signers={"vault": ["127.0.0.1:1"]})
    text = edge.gateway.file.read_text()
    assert old in text
    edge.gateway.file.write_text(text.replace(old, new))
    done = subprocess.run(
        [pronghorn(), "check", edge.gateway.file],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 2, done.stderr
    problem, conclusion = lines
    assert re.match(rf"{edge.gateway.file}:\d+:\d+: .*{re.escape(message)}.*; \w", problem), problem
    assert conclusion == f"error: {edge.gateway.file} has an error"


def test_check_does_not_connect_to_signers(edge):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        edge.write(FROM_SIGNER, signers={"vault": [address]})
        command = [pronghorn(), "check", edge.gateway.file]
        assert (
            subprocess.run(command, capture_output=True, timeout=DEADLINE_SECONDS).returncode == 0
        )
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_client_key_that_may_not_be_read_is_an_error(identity):
    with open_folder() as folder:
        edge = Edge(Gateway(folder, identity))
        edge.write(FROM_SIGNER, signers={"vault": ["127.0.0.1:1"]})
        for file in folder.rglob("*"):
            file.chmod(0o755 if file.is_dir() else 0o644)
        (edge.signer.folder / "gateway-key.pem").chmod(0)
        command = without_rights([copied(pronghorn(), folder), "check", edge.gateway.file])
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert (done.returncode, done.stderr.count("\n")) == (77, 2), done.stderr
    assert "signer/gateway-key.pem: Permission denied" in done.stderr
