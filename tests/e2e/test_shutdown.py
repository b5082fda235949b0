"""Shutdown by SIGTERM: clients get GOAWAY, open requests finish, and the process ends in time."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import suppress

import pytest
from hyperframe.frame import WindowUpdateFrame

from harness.clients.aioquic_h3 import ConnectionLostError, StreamResetError, h3_connection
from harness.clients.go import GoClient
from harness.clients.h2_frames import H2Client
from harness.clients.raw_h1 import RawH1
from harness.response import sha256
from harness.waiting import DEADLINE_SECONDS, eventually

H3_NO_ERROR = 0x100
H3_REQUEST_REJECTED = 0x10B
NO_ERROR = 0

TIMED_OUT = 75
"""Exit code of a server that dropped open requests."""

CUT_OFF = (
    r"^warning: 1 request was aborted, still running 1 s after .*; allow more time with --grace$"
)


@pytest.fixture
def patient(start_serve):
    """Starts a server whose grace period is long enough for a download on a busy machine."""
    return start_serve("--grace", str(10 * int(DEADLINE_SECONDS)))


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_an_idle_server_with_zero(server, stop):
    server.popen.send_signal(stop)
    assert server.wait() == 0, server.lines


def test_signal_at_readiness_ends_the_server_with_zero(start_serve):
    # After that line a signal is handled: a supervisor may send one at once.
    for _ in range(25):
        server = start_serve()
        server.terminate()
        assert server.wait() == 0, server.lines


async def test_h3_download_finishes_after_go_away(patient, site, ca):
    async with h3_connection(patient.origin, ca) as client:
        # aioquic receives a megabyte before it opens its window, so most of the body is unsent.
        download = client.start("/big.bin")
        await client.head(download)
        patient.terminate()
        identifiers = await client.wait_for_go_away()
        response = await client.finish(download)
        assert response.sha256 == sha256(site.read("big.bin"))
        # RFC 9114 section 5.2: the identifier is that of a request stream, and never increases.
        assert all(identifier % 4 == 0 for identifier in identifiers)
        assert identifiers == sorted(identifiers, reverse=True)
        ended = await client.wait_terminated()
        assert ended.error_code in (H3_NO_ERROR, NO_ERROR)
    assert await asyncio.to_thread(patient.wait) == 0


async def test_h3_request_after_the_last_go_away_is_rejected(patient, ca):
    async with h3_connection(patient.origin, ca) as client:
        download = client.start("/big.bin")
        await client.head(download)
        client.hold()
        patient.terminate()
        # The server cannot finish while no packet is acknowledged, so it still receives another
        # request.
        late = [client.start("/small.txt") for _ in range(3)]
        client.resume()
        await client.wait_for_go_away()
        await client.finish(download)
        for exchange in late:
            # The server decides whether each was in time, and must signal it in one of these ways.
            try:
                assert (await client.finish(exchange)).status == 200
            except StreamResetError as error:
                assert error.code == H3_REQUEST_REJECTED
                assert exchange.stream >= client.go_away_ids[-1]
            except ConnectionLostError as error:
                assert error.code in (H3_NO_ERROR, NO_ERROR)
                assert exchange.stream >= client.go_away_ids[-1]
    assert await asyncio.to_thread(patient.wait) == 0


def test_h2_download_finishes_after_go_away(patient, site, ca):
    with H2Client(patient.origin, ca) as client:
        client.opens_windows = False
        stream = client.start("/big.bin")
        # The first window is full: the server cannot send more.
        while len(client.exchanges[stream].body) < 65_535:
            assert client.read()
        patient.terminate()
        while not client.go_away:
            assert client.read(), "the connection ended without GOAWAY"
        client.open_windows()
        assert client.finish(stream).sha256 == sha256(site.read("big.bin"))
        while client.read():
            pass
        assert {frame.code for frame in client.go_away} == {NO_ERROR}
        assert client.go_away[-1].last_stream == stream
    assert patient.wait() == 0, patient.lines


def test_h2_download_is_complete_if_credit_arrives_after_the_last_write(patient, site, ca):
    with H2Client(patient.origin, ca) as client:
        # Data that the client has not read stays in the server's socket.
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 262_144)
        client.opens_windows = False
        stream = client.start("/big.bin")
        wanted = site.read("big.bin")
        for each in (None, stream):
            client.http.increment_flow_control_window(len(wanted), each)
        client.flush()
        patient.terminate()
        while not client.exchanges[stream].ended and client.read():
            # Clients send credit for each piece that they read.
            with suppress(OSError):
                client.socket.sendall(WindowUpdateFrame(stream, 1).serialize())
        assert {frame.code for frame in client.go_away} == {NO_ERROR}
        assert len(client.exchanges[stream].body) == len(wanted)
    assert patient.wait() == 0, patient.lines


def test_h1_download_finishes_and_the_connection_is_closed(patient, site, ca):
    with RawH1(patient.origin, ca) as client:
        request = f"GET /big.bin HTTP/1.1\r\nhost: {client.authority}\r\n\r\n"
        client.socket.sendall(request.encode())
        head = client.socket.recv(1)
        patient.terminate()
        received = bytearray(head)
        while chunk := client.socket.recv(1 << 16):
            received += chunk
    assert bytes(received).partition(b"\r\n\r\n")[2] == site.read("big.bin")
    assert patient.wait() == 0, patient.lines


@pytest.mark.parametrize("version", ["1.1", "2", "3"])
def test_idle_connections_do_not_delay_the_shutdown(start_serve, ca, version):
    # The grace period is longer than the test waits: a server ends in time only if it notices that
    # no request is open.
    server = start_serve("--grace", str(10 * int(DEADLINE_SECONDS)))
    with GoClient(version, ca) as client:
        assert client.fetch(f"{server.origin}/small.txt").status == 200
        server.terminate()
        assert server.wait() == 0, server.lines


def is_refused(server, ca) -> bool:
    try:
        with RawH1(server.origin, ca):
            return False
    except OSError:
        return True


def test_new_connections_are_refused_while_a_download_runs(patient, site, ca):
    with H2Client(patient.origin, ca) as client:
        client.opens_windows = False
        stream = client.start("/big.bin")
        while len(client.exchanges[stream].body) < 65_535:
            assert client.read()
        patient.terminate()
        while not client.go_away:
            assert client.read()
        # Each worker closes its listener itself, so another one may do it a moment later.
        eventually("new connections to be refused", lambda: is_refused(patient, ca))
        client.open_windows()
        assert client.finish(stream).sha256 == sha256(site.read("big.bin"))
    assert patient.wait() == 0, patient.lines


@pytest.mark.parametrize("protocol", ["HTTP/2", "HTTP/3"])
async def test_grace_period_ends_a_stalled_download(start_serve, ca, protocol):
    server = start_serve("--grace", "1")
    if protocol == "HTTP/2":
        with H2Client(server.origin, ca) as client:
            client.opens_windows = False
            stream = client.start("/big.bin")
            while len(client.exchanges[stream].body) < 65_535:
                assert client.read()
            server.terminate()
            # Without the grace period it would wait for the client forever.
            assert server.wait() == 0, server.lines
            server.wait_for_lines(CUT_OFF)
        return
    async with h3_connection(server.origin, ca) as client:
        download = client.start("/big.bin")
        await client.head(download)
        client.hold()
        server.terminate()
        assert await asyncio.to_thread(server.wait) == 0
        server.wait_for_lines(CUT_OFF)
        client.resume()
        # The server's last packet is a close; without it the client would wait for its own timeout.
        with pytest.raises(ConnectionLostError) as lost:
            await client.finish(download)
        assert lost.value.code in (H3_NO_ERROR, NO_ERROR), lost.value


def test_second_signal_ends_the_server_at_once(start_serve, ca):
    server = start_serve("--grace", "600")
    with H2Client(server.origin, ca) as client:
        client.opens_windows = False
        stream = client.start("/big.bin")
        while len(client.exchanges[stream].body) < 65_535:
            assert client.read()
        server.terminate()
        while not client.go_away:
            assert client.read()
        server.terminate()
        assert server.wait() == TIMED_OUT
