"""HTTP/2 in clear text (RFC 9113 section 3.3): with prior knowledge, never by `Upgrade`."""

from __future__ import annotations

import socket

import h2.connection
import h2.events
import pytest

from harness.clients.h2_frames import H2Client
from harness.clients.raw_h1 import RawH1
from harness.gateway import seen

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SITE = '[[sites]]\nhosts = ["*"]\n[[sites.routes]]\n'


@pytest.fixture
def clear(start, gateway, up):
    """Starts a gateway that forwards clear-text requests."""

    def run(server: str = "", more: str = ""):
        gateway.write(
            SITE + f'proxy = "{up.address}"\n{more}', server=server, listen=("http://127.0.0.1:0",)
        )
        return start(gateway.command())

    return run


def connect(server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def to_its_end(client: socket.socket) -> bytes:
    received = b""
    try:
        while piece := client.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def test_client_with_prior_knowledge_is_served_over_http2(clear, up):
    server = clear()
    assert server.listeners[0].protocols == ("h1", "h2")
    with H2Client(server.origin, None) as client:
        streams = [client.start(f"/{number}") for number in range(20)]
        asked = [seen(client.finish(stream)) for stream in streams]
        assert [each["path"] for each in asked] == [f"/{number}" for number in range(20)]
        assert {each["headers"]["x-forwarded-proto"] for each in asked} == {"http"}
        stream = client.start("/upload", method="POST", end=False)
        client.http.send_data(stream, b"x" * 10_000, end_stream=True)
        client.flush()
        assert seen(client.finish(stream))["content"] == 10_000


def test_preface_may_arrive_in_pieces(clear):
    server = clear()
    http2 = h2.connection.H2Connection()
    http2.initiate_connection()
    head = [(":method", "GET"), (":scheme", "http"), (":authority", "a.test"), (":path", "/")]
    http2.send_headers(1, head, end_stream=True)
    with connect(server) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in http2.data_to_send():
            client.sendall(bytes([byte]))
        events = []
        while not any(isinstance(event, h2.events.StreamEnded) for event in events):
            events += http2.receive_data(client.recv(65536))
        [answer] = [event for event in events if isinstance(event, h2.events.ResponseReceived)]
        assert dict(answer.headers)[b":status"] == b"200"


def test_http1_methods_that_start_like_the_preface_are_http1(clear, up):
    server = clear()
    for begin, rest in [
        (b"P", b"OST / HTTP/1.1\r\n"),
        (b"PR", b"OPFIND / HTTP/1.1\r\n"),
        (b"", b"GET / HTTP/1.1\r\n"),
    ]:
        with connect(server) as client:
            client.sendall(begin)
            # By now the server has read the first bytes.
            with RawH1(server.origin, None) as other:
                assert other.fetch("/").status == 200
            client.sendall(rest + b"host: a.test\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            assert to_its_end(client).startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("part", [b"", b"PRI", PREFACE[:-1], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rx"])
def test_client_that_disconnects_during_the_preface_is_dropped(clear, part):
    server = clear()
    with connect(server) as client:
        client.sendall(part)
        client.shutdown(socket.SHUT_WR)
        answer = to_its_end(client)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
    with H2Client(server.origin, None) as client:
        assert client.fetch("/").status == 200


def test_incomplete_preface_times_out_like_a_head(clear):
    server = clear(more='[limits]\nhead_timeout = "300ms"\n')
    with connect(server) as client:
        client.sendall(PREFACE[:20])
        assert to_its_end(client) == b""


def test_h2c_upgrade_is_ignored(clear):
    server = clear()
    fields = [
        ("connection", "Upgrade, HTTP2-Settings"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
    ]
    with RawH1(server.origin, None) as client:
        answer = client.fetch("/", headers=fields)
        assert answer.status == 200
        assert "upgrade" not in seen(answer)["headers"]
        assert client.fetch("/").status == 200


def test_prior_knowledge_can_be_disabled(clear):
    server = clear("http2_prior_knowledge = false")
    assert server.listeners[0].protocols == ("h1",)
    with connect(server) as client:
        client.sendall(PREFACE)
        assert to_its_end(client).startswith((b"HTTP/1.1 400", b"HTTP/1.1 505"))
    with RawH1(server.origin, None) as client:
        assert client.fetch("/").status == 200


def test_redirect_to_https_works_over_http2(start, gateway):
    listen = ("127.0.0.1:0", "http://127.0.0.1:0")
    gateway.write(
        '[[sites]]\nhosts = ["*"]\n{tls}\n[[sites.routes]]\nrespond = "x"\n', listen=listen
    )
    server = start(gateway.command(), listeners=2)
    secure, clear = sorted(server.listeners, key=lambda listener: listener.scheme, reverse=True)
    with H2Client(clear.origin(), None) as client:
        answer = client.fetch("/x?y")
        assert answer.status == 308
        assert dict(answer.headers)["location"] == f"https://127.0.0.1:{secure.port}/x?y"


@pytest.mark.parametrize("protocol", ["http2"])
def test_chained_gateways_use_http2_in_clear_text(start, gateway, clear, tmp_path, protocol):
    behind = clear()
    front = tmp_path / "front.toml"
    front.write_text(
        '[server]\nlisten = ["http://127.0.0.1:0"]\n'
        + SITE
        + f'proxy = "app"\n[upstreams.app]\nservers = ["{behind.origin}"]\nprotocol = "{protocol}"\n'
    )
    server = start([gateway.command()[0], "run", "-c", front])
    with H2Client(server.origin, None) as client:
        assert seen(client.fetch("/deep"))["path"] == "/deep"
