"""Certificate compression (RFC 8879): a client that supports it gets a compressed certificate,
others a plain one.
"""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from curl_cffi import CurlOpt

from harness.certificates import make_identity
from harness.clients import curl
from harness.clients.chromium import NAME, common_flags, protocol_flags, visit
from harness.server import serve_command
from harness.udp_proxy import DOWN, UdpProxy

PAGE = "<!doctype html><title>page</title><link rel=icon href=data:,>"


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Makes a certificate of some 20 KiB, mostly similar names."""
    return make_identity(tmp_path_factory.mktemp("chain"), more_names=700)


@pytest.fixture(scope="module")
def plain_bytes(chain) -> int:
    return len(x509.load_pem_x509_certificate(chain.cert.read_bytes()).public_bytes(Encoding.DER))


@pytest.fixture
def server(start, chain, tmp_path):
    (tmp_path / "index.html").write_text(PAGE)
    return start(serve_command(tmp_path, chain))


class Relay:
    """Forwards TCP connections and counts what the server sends on each."""

    def __init__(self, port: int):
        self.server_port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.down: list[int] = []

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.server_port))
                number = len(self.down)
                self.down.append(0)
                for ends in ((client, server, None), (server, client, number)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, number: int | None) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                if number is not None:
                    self.down[number] += len(piece)
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    ("algorithm", "is_smaller"),
    [("brotli", True), ("zlib", True), ("zlib,brotli", True), (None, False)],
)
def test_certificate_is_compressed_as_the_client_supports(
    server, chain, plain_bytes, algorithm, is_smaller
):
    with Relay(server.port) as relay, curl.session(chain.ca) as session:
        if algorithm is not None:
            session.curl_options[CurlOpt.SSL_CERT_COMPRESSION] = algorithm
        response = curl.ask(session, "HTTP/2", f"https://127.0.0.1:{relay.port}/")
        assert response.body == PAGE.encode()
        (received,) = relay.down
    assert (received < plain_bytes / 2) == is_smaller, (received, plain_bytes)


def test_chromium_gets_a_compressed_certificate_over_tcp(server, chain, plain_bytes):
    with Relay(server.port) as relay:
        flags = common_flags(chain.spki_hash) + protocol_flags("h2", NAME, relay.port)
        (visited,) = visit(f"https://{NAME}:{relay.port}/", flags)["visits"]
        assert [request["protocol"] for request in visited["requests"]] == ["h2"]
        assert max(relay.down) < plain_bytes / 2, (relay.down, plain_bytes)


def test_chromium_gets_a_compressed_certificate_over_quic(server, chain, plain_bytes):
    with UdpProxy(server.port, seed="compression", record=True) as proxy:
        flags = common_flags(chain.spki_hash) + protocol_flags("h3", NAME, proxy.port)
        (visited,) = visit(f"https://{NAME}:{proxy.port}/", flags)["visits"]
        assert [request["protocol"] for request in visited["requests"]] == ["h3"]
        flow = next(iter(proxy.flows.values()))
    received = 0
    for way, content in flow.datagrams:
        if way == DOWN:
            received += len(content)
        elif not content[0] & 0x80:
            # A packet with a short header: the client has the whole certificate. The page, probes of
            # the path and what a busy machine retransmits later do not count.
            break
    assert received < plain_bytes, (received, plain_bytes)
