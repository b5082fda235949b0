"""Servers that crash, clients that vanish, and idle connections."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from harness.clients.aioquic_h3 import StreamResetError, h3_connection
from harness.clients.go import GoClient, RequestFailedError
from harness.clients.h2_frames import H2Client
from harness.clients.raw_h1 import RawH1
from harness.clients.tls import vanish
from harness.waiting import DEADLINE_SECONDS, eventually

MIB = 1 << 20
# Longer than a busy machine delays any process.
IDLE_SECONDS = "4"
CLIENT_IDLE = f"{IDLE_SECONDS}s"


@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_client_reconnects_after_the_server_crashed(start_serve, site, ca, version):
    server = start_serve()
    with GoClient(version, ca, idle_timeout=CLIENT_IDLE) as client:
        assert client.fetch(f"{server.origin}/small.txt").status == 200
        server.kill()
        with pytest.raises(RequestFailedError):
            client.fetch(f"{server.origin}/small.txt")
        again = start_serve(listen=(f"127.0.0.1:{server.port}",))
        assert again.port == server.port
        response = eventually("an answer of the new server", lambda: answer_or_none(client, again))
        assert response.body == site.read("small.txt")


@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_client_of_a_restarted_server_gets_an_error_or_a_response(start_serve, site, ca, version):
    # The client has not noticed: its next request goes out on a connection that the new process
    # does not know.
    server = start_serve()
    with GoClient(version, ca, idle_timeout=CLIENT_IDLE) as client:
        assert client.fetch(f"{server.origin}/small.txt").status == 200
        server.kill()
        again = start_serve(listen=(f"127.0.0.1:{server.port}",))
        response = eventually("an answer of the new server", lambda: answer_or_none(client, again))
        assert response.body == site.read("small.txt")


def answer_or_none(client: GoClient, server):
    try:
        return client.fetch(f"{server.origin}/small.txt")
    except RequestFailedError:
        return None


@pytest.fixture
def huge(tmp_path):
    """Makes a folder with a sparse file of 1 GiB: far larger than any buffer on the way."""
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(1 << 30)
    (tmp_path / "small.txt").write_bytes(b"small")
    return tmp_path


@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_download_cut_by_a_crash_is_an_error_at_the_client(start_serve, huge, ca, version):
    server = start_serve(directory=huge)
    with GoClient(version, ca, idle_timeout=CLIENT_IDLE) as client:
        client.send(f"{server.origin}/huge.bin", print_head=True)
        assert client.receive_head() == 200
        server.kill()
        done = client.receive()
    assert done.errors
    assert done.responses == []


async def abandon_h3(origin: str, ca, path: str) -> None:
    async with h3_connection(origin, ca) as client:
        download = client.start(path)
        await client.head(download)
        client.vanish()


def abandon_h2(origin: str, ca, path: str) -> None:
    client = H2Client(origin, ca)
    client.opens_windows = False
    stream = client.start(path)
    while not client.exchanges[stream].body:
        assert client.read()
    vanish(client.socket)


def abandon_h1(origin: str, ca, path: str) -> None:
    client = RawH1(origin, ca)
    client.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: {client.authority}\r\n\r\n".encode())
    assert client.socket.recv(1000)
    vanish(client.socket)


def abandon(protocol: str, origin: str, ca, path: str) -> None:
    if protocol == "HTTP/3":
        asyncio.run(abandon_h3(origin, ca, path))
    elif protocol == "HTTP/2":
        abandon_h2(origin, ca, path)
    else:
        abandon_h1(origin, ca, path)


def test_clients_gone_in_mid_body_leak_nothing(start_serve, ca, huge, protocol_fetcher):
    server = start_serve("--idle-timeout", IDLE_SECONDS, "--stats", directory=huge)
    server.serves(protocol_fetcher, "/small.txt")
    quiet = server.descriptors_at_rest()

    def round_of_abandoned_downloads() -> int:
        for _ in range(20):
            abandon(protocol_fetcher.protocol, server.origin, ca, "/huge.bin")
        eventually("no descriptor left of them", lambda: server.open_descriptors() <= quiet)
        return server.resident_bytes()

    # The first rounds fill the pools of the allocator and the buffers; growth after them is a leak.
    warm = max(round_of_abandoned_downloads() for _ in range(2))
    later = min(round_of_abandoned_downloads() for _ in range(3))
    assert later < warm + 8 * MIB
    server.serves(protocol_fetcher, "/small.txt")
    eventually("an idle server", lambda: cpu_share(server, seconds=1) < 0.05)
    server.terminate()
    assert server.wait() == 0, server.lines
    counters = server.counters()
    assert counters["requests_aborted"] >= 100
    if protocol_fetcher.protocol == "HTTP/3":
        assert counters["quic_timed_out"] >= 100


def cpu_share(server, seconds: float) -> float:
    """Returns the share of one core that the server uses over a window of time."""
    begin, spent = time.monotonic(), server.cpu_seconds()
    time.sleep(seconds)
    return (server.cpu_seconds() - spent) / (time.monotonic() - begin)


@pytest.mark.parametrize("path", ["/upload", "/echo"])
@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2", "HTTP/3"])
def test_upload_that_stalls_in_mid_body_leaves_the_handler_working(handler, ca, protocol, path):
    for _ in range(5):
        if protocol == "HTTP/3":
            asyncio.run(abandon_h3_upload(handler.origin, ca, path))
        elif protocol == "HTTP/2":
            abandon_h2_upload(handler.origin, ca, path)
        else:
            abandon_h1_upload(handler.origin, ca, path)
    with GoClient({"HTTP/1.1": "1.1", "HTTP/2": "2", "HTTP/3": "3"}[protocol], ca) as client:
        assert client.fetch(f"{handler.origin}/headers?n=1").status == 200
    eventually("an idle handler", lambda: cpu_share(handler, seconds=1) < 0.05)


async def abandon_h3_upload(origin: str, ca, path: str) -> None:
    async with h3_connection(origin, ca) as client:
        stream = client._quic.get_next_available_stream_id()
        head = [
            (b":method", b"POST"),
            (b":scheme", b"https"),
            (b":authority", client.authority.encode()),
        ]
        client.http.send_headers(
            stream, [*head, (b":path", path.encode()), (b"content-length", b"100000")]
        )
        client.http.send_data(stream, b"x" * 50_000, end_stream=False)
        client.transmit()
        await client.ping()
        client.vanish()


def abandon_h2_upload(origin: str, ca, path: str) -> None:
    client = H2Client(origin, ca)
    stream = client.http.get_next_available_stream_id()
    head = [
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", client.authority),
        (":path", path),
    ]
    client.http.send_headers(stream, [*head, ("content-length", "100000")])
    client.http.send_data(stream, b"x" * 10_000)
    client.flush()
    vanish(client.socket)


def abandon_h1_upload(origin: str, ca, path: str) -> None:
    client = RawH1(origin, ca)
    head = f"POST {path} HTTP/1.1\r\nhost: {client.authority}\r\ncontent-length: 100000\r\n\r\n"
    client.socket.sendall(head.encode() + b"x" * 10_000)
    vanish(client.socket)


async def test_reset_streams_leave_the_connection_usable(server, site, ca):
    h3_request_cancelled = 0x10C
    async with h3_connection(server.origin, ca) as client:
        for _ in range(50):
            download = client.start("/big.bin")
            await client.head(download)
            client._quic.stop_stream(download.stream, h3_request_cancelled)
            client.transmit()
            with pytest.raises(StreamResetError):
                await client.finish(download)
        assert (await client.fetch("/small.txt")).body == site.read("small.txt")


def test_idle_h1_connection_is_closed(start_serve, ca):
    server = start_serve("--idle-timeout", IDLE_SECONDS)
    with RawH1(server.origin, ca) as client:
        assert client.fetch("/small.txt").status == 200
        # No data is sent; the read ends when the server closes.
        assert client.socket.recv(1) == b""


def test_idle_h2_connection_is_closed_with_go_away(start_serve, ca):
    server = start_serve("--idle-timeout", IDLE_SECONDS)
    with H2Client(server.origin, ca) as client:
        assert client.fetch("/small.txt").status == 200
        while client.read():
            pass
        assert client.end_of_stream
        assert [frame.code for frame in client.go_away][-1:] == [0]


async def test_idle_h3_connection_is_closed_silently(start_serve, ca):
    server = start_serve("--idle-timeout", IDLE_SECONDS, "--stats", "--limit", "connections=1")
    # The client's own timeout is a minute; the server's transport parameter is lower (RFC 9000
    # section 10.1).
    async with h3_connection(server.origin, ca, idle_timeout=60.0) as client:
        assert (await client.fetch("/small.txt")).status == 200
        assert await client.wait_terminated() is not None
    # The server has its own idle timer, and the client has vanished. The server accepts one
    # connection at a time.
    assert (
        await asyncio.to_thread(
            eventually, "room for another connection", lambda: status_or_none(server, ca)
        )
        == 200
    )
    server.terminate()
    assert await asyncio.to_thread(server.wait) == 0
    assert server.counters()["quic_timed_out"] == 1


def status_or_none(server, ca):
    with GoClient("3", ca) as client:
        response = answer_or_none(client, server)
    return response and response.status


def test_silent_connection_is_closed(start_serve, ca):
    server = start_serve("--idle-timeout", IDLE_SECONDS)
    with socket.create_connection((server.host, server.port), DEADLINE_SECONDS) as silent:
        assert silent.recv(1) == b""


def test_connection_stalled_in_its_request_head_is_closed(start_serve, ca):
    server = start_serve("--idle-timeout", IDLE_SECONDS)
    with RawH1(server.origin, ca) as client:
        client.socket.sendall(b"GET /small.txt HTTP/1.1\r\nhost: ")
        rest = b""
        while chunk := client.socket.recv(4096):
            rest += chunk
        assert rest == b"" or rest.startswith(b"HTTP/1.1 408 ")


def test_connection_in_use_outlives_the_idle_timeout(start_serve, ca):
    # Requests follow one another for longer than the timeout: use counts, not age.
    server = start_serve("--idle-timeout", "5")
    with GoClient("1.1", ca) as h1, GoClient("2", ca) as h2, GoClient("3", ca) as h3:
        begin = time.monotonic()
        while time.monotonic() < begin + 7:
            rounds = [client.round(f"{server.origin}/small.txt") for client in (h1, h2, h3)]
            time.sleep(0.5)
    assert [(done.errors, done.connections) for done in rounds] == [([], 1)] * 3
