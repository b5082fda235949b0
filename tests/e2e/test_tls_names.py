"""TLS server names that are not DNS names, as some clients send them: treated as absent."""

from __future__ import annotations

import socket
import ssl
from http.client import HTTPResponse

import pytest

from harness.clients.client_hello import Extension, with_extensions
from harness.clients.raw_h3 import RawH3
from harness.gateway import SITE

NAMES = [b"localhost:8443", b"a b", b"a" * 70, b"[::1]", b"http://localhost/", b"-"]


@pytest.fixture
def server(start, gateway):
    gateway.write(SITE + '[[sites.routes]]\nrespond = "found"\n')
    return start(gateway.command())


def client_context(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["http/1.1"])
    return context


def ask(
    context: ssl.SSLContext, port: int, name: bytes, session=None
) -> tuple[int, ssl.SSLSession, bool]:
    """Returns the status, the session for the next time, and whether a session was resumed."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=60)
    with context.wrap_socket(plain, server_hostname=name, session=session) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = HTTPResponse(client)
        answer.begin()
        assert answer.read() == b"found"
        return answer.status, client.session, client.session_reused


@pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"]
)
@pytest.mark.parametrize("name", NAMES)
def test_client_with_an_invalid_server_name_is_served_over_tcp(server, version, name):
    context = client_context(version)
    status, session, _ = ask(context, server.port, name)
    assert status == 200
    # The session's binder covers the ClientHello as sent.
    status, _, is_resumed = ask(context, server.port, name, session)
    assert (status, is_resumed) == (200, True)


@pytest.mark.parametrize("name", [*NAMES, "m\u00fcller.example".encode()])
def test_client_with_an_invalid_server_name_is_served_over_quic(server, name):
    def named(extensions):
        entry = b"\0" + len(name).to_bytes(2, "big") + name
        others = [(kind, content) for kind, content in extensions if kind != Extension.SERVER_NAME]
        return [*others, (Extension.SERVER_NAME, len(entry).to_bytes(2, "big") + entry)]

    with RawH3(server.origin, edit_hello=with_extensions(named)) as client:
        fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", "/"),
        ]
        answer = client.open().answer(client.request(fields))
        assert (answer.status, answer.body) == (200, b"found")


def test_fragmented_handshake_is_served(server):
    context = client_context(ssl.TLSVersion.TLSv1_3)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=NAMES[0])
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    plain.sendall(bytes([byte]))
                incoming.write(plain.recv(65536))
            else:
                break
        client.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        for byte in outgoing.read():
            plain.sendall(bytes([byte]))
        while data := plain.recv(65536):
            incoming.write(data)
        assert client.read(65536).startswith(b"HTTP/1.1 200")
