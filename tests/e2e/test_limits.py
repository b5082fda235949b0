"""Limits as independent clients reach them, and state that survives a restart of the server."""

from __future__ import annotations

import asyncio
import os
import ssl
from urllib.parse import urlsplit

import pytest
from aioquic.asyncio.client import connect
from aioquic.h3.connection import H3_ALPN, Setting
from aioquic.quic.configuration import QuicConfiguration

from harness.clients.aioquic_h3 import Exchange, H3Client, StreamResetError, h3_connection
from harness.clients.go import GoClient, RequestFailedError
from harness.process import Process
from harness.server import pronghorn
from harness.waiting import DEADLINE_SECONDS, eventually

H3_REQUEST_REJECTED = 0x10B
QPACK_DECOMPRESSION_FAILED = 0x200
QPACK_ENCODER_STREAM_ERROR = 0x201
FLOW_CONTROL_ERROR = 0x3
STREAM_LIMIT_ERROR = 0x4


def counters_of(server) -> dict[str, int]:
    server.terminate()
    server.wait()
    return server.counters()


def open_stream(client: H3Client, data: bytes, *, unidirectional: bool = False) -> Exchange:
    """Sends these bytes on a new stream; the exchange shows the result."""
    loop = asyncio.get_running_loop()
    quic = client._quic
    stream = quic.get_next_available_stream_id(is_unidirectional=unidirectional)
    exchange = Exchange(stream, loop.create_future(), loop.create_future())
    client.exchanges[stream] = exchange
    quic.send_stream_data(stream, data)
    client.transmit()
    return exchange


async def closed_with(client: H3Client) -> int:
    await asyncio.wait_for(client.wait_closed(), DEADLINE_SECONDS)
    return client.terminated.error_code


async def test_incomplete_head_times_out_and_resets_its_stream(start_serve, ca):
    server = start_serve("--limit", "head_timeout=500ms", "--stats")
    async with h3_connection(server.origin, ca) as client:
        # A HEADERS frame of 100 bytes, of which three arrive.
        exchange = open_stream(client, b"\x01\x40\x64\x00\x00\xd1")
        with pytest.raises(StreamResetError) as reset:
            await asyncio.wait_for(exchange.done, DEADLINE_SECONDS)
        assert reset.value.code == H3_REQUEST_REJECTED
        assert (await client.fetch("/small.txt")).status == 200
    counters = counters_of(server)
    assert counters["head_timeouts"] == 1
    assert counters["requests_refused"] == 1


async def test_incomplete_heads_over_the_limit_are_rejected_and_complete_ones_are_not(
    start_serve, ca
):
    server = start_serve("--limit", "partial_heads=3", "--workers", "1", "--stats")
    async with h3_connection(server.origin, ca) as client:
        waiting = [open_stream(client, b"\x01\x40\x64\x00\x00\xd1") for _ in range(4)]
        with pytest.raises(StreamResetError) as reset:
            await asyncio.wait_for(waiting[3].done, DEADLINE_SECONDS)
        assert reset.value.code == H3_REQUEST_REJECTED
        assert (await client.fetch("/small.txt")).status == 200
        assert not any(exchange.done.done() for exchange in waiting[:3])
    assert counters_of(server)["partial_heads_refused"] == 1


@pytest.mark.parametrize("unidirectional", [False, True], ids=["bidi", "uni"])
async def test_stream_over_the_limit_closes_the_connection(start_serve, ca, unidirectional):
    server = start_serve("--stats")
    async with h3_connection(server.origin, ca) as client:
        assert (await client.fetch("/small.txt")).status == 200
        client._quic._remote_max_streams_bidi = client._quic._remote_max_streams_uni = 10_000
        stream = 4 * 1000 + (2 if unidirectional else 0)
        client._quic.send_stream_data(stream, b"\x00")
        client.transmit()
        assert await closed_with(client) == STREAM_LIMIT_ERROR
    counters = counters_of(server)
    # The library does not distinguish the two if neither limit was reached before.
    assert counters["streams_refused"] + counters["uni_streams_refused"] == 1


async def test_content_over_the_flow_control_window_closes_the_connection(start_serve, ca):
    server = start_serve("--limit", "stream_window_bytes=16KiB", "--stats")
    async with h3_connection(server.origin, ca) as client:
        assert (await client.fetch("/small.txt")).status == 200
        exchange = open_stream(client, b"")
        stream = client._quic._streams[exchange.stream]
        stream.max_stream_data_remote = client._quic._remote_max_data = 1 << 30
        # As if the whole window had been sent before.
        stream.sender._buffer_start = stream.sender._buffer_stop = 16 << 10
        client._quic.send_stream_data(exchange.stream, b"one byte more")
        client.transmit()
        assert await closed_with(client) == FLOW_CONTROL_ERROR
    assert counters_of(server)["connection_window_overruns"] == 1


async def test_too_large_head_over_http3_is_431(start_serve, ca):
    server = start_serve(
        "--limit", "field_section_bytes=4KiB", "--limit", "field_lines=40", "--stats"
    )
    async with h3_connection(server.origin, ca) as client:
        large = await client.fetch("/small.txt", headers=[("x-large", "x" * 5000)])
        many = await client.fetch(
            "/small.txt", headers=[(f"x-{number}", "1") for number in range(50)]
        )
        assert (large.status, many.status) == (431, 431)
        assert (await client.fetch("/small.txt")).status == 200
    counters = counters_of(server)
    assert (counters["heads_too_large"], counters["heads_too_many_lines"]) == (1, 1)


async def test_qpack_table_is_offered_as_configured_and_a_larger_one_is_an_error(start_serve, ca):
    server = start_serve(
        "--limit", "qpack_table_bytes=1KiB", "--limit", "qpack_blocked_streams=3", "--stats"
    )
    async with h3_connection(server.origin, ca) as client:
        assert (await client.fetch("/small.txt")).status == 200
        offered = client.http.received_settings
        assert offered[Setting.QPACK_MAX_TABLE_CAPACITY] == 1024
        assert offered[Setting.QPACK_BLOCKED_STREAMS] == 3
        # Set Dynamic Table Capacity (RFC 9204 section 4.3.1): the offered capacity, and one byte
        # more.
        encoder_stream = client.http._local_encoder_stream_id
        client._quic.send_stream_data(encoder_stream, bytes([0x3F, 0xE1, 0x07]))
        client.transmit()
        assert (await client.fetch("/small.txt")).status == 200
        client._quic.send_stream_data(encoder_stream, bytes([0x3F, 0xE2, 0x07]))
        client.transmit()
        assert await closed_with(client) == QPACK_ENCODER_STREAM_ERROR
    assert counters_of(server)["qpack_tables_exceeded"] == 1


async def test_blocked_streams_over_the_limit_close_the_connection(start_serve, ca):
    server = start_serve("--limit", "qpack_blocked_streams=2", "--stats")
    # Required Insert Count 127 and one reference: there are fewer insertions here, so it blocks.
    blocked = b"\x01\x03\x80\x00\x80"
    async with h3_connection(server.origin, ca) as client:
        for _ in range(2):
            open_stream(client, blocked)
        assert (await client.fetch("/small.txt")).status == 200
        open_stream(client, blocked)
        assert await closed_with(client) == QPACK_DECOMPRESSION_FAILED
    counters = counters_of(server)
    assert (counters["qpack_streams_blocked"], counters["qpack_blocked_streams_exceeded"]) == (2, 1)


async def test_connections_over_the_limit_are_rejected(start_serve, ca):
    server = start_serve("--limit", "connections_per_client=2", "--stats")
    async with h3_connection(server.origin, ca), h3_connection(server.origin, ca) as second:
        with pytest.raises(ConnectionError):
            async with h3_connection(server.origin, ca):
                pass
        assert (await second.fetch("/small.txt")).status == 200
    assert counters_of(server)["connections_refused_per_client"] > 0


def test_connection_to_a_crashed_server_ends_by_a_stateless_reset(start_serve, site, ca, tmp_path):
    state = ("--state-dir", tmp_path / "state", "--workers", "2")
    server = start_serve(*state)
    # The client's own idle timeout must not end it first.
    with GoClient("3", ca, idle_timeout="300s") as client:
        assert client.fetch(f"{server.origin}/small.txt").status == 200
        server.kill()
        again = start_serve(*state, "--stats", listen=(f"127.0.0.1:{server.port}",))

        def answer():
            try:
                return client.fetch(f"{again.origin}/small.txt")
            except RequestFailedError:
                return None

        assert eventually("an answer of the new server", answer).body == site.read("small.txt")
    assert counters_of(again)["stateless_resets_sent"] > 0


async def connect_with(server, ca, token: bytes = b"", tokens: list[bytes] | None = None) -> int:
    """Connects, fetches and returns the status; collects the tokens received."""
    url = urlsplit(server.origin)
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, token=token)
    configuration.load_verify_locations(cafile=str(ca))
    handler = (lambda came: tokens.append(came)) if tokens is not None else None
    options = {
        "configuration": configuration,
        "create_protocol": H3Client,
        "token_handler": handler,
    }
    async with connect(url.hostname, url.port, **options) as client:
        client.authority = url.netloc
        status = (await client.fetch("/small.txt")).status
        while tokens is not None and not tokens:
            await client.ping()
        return status


async def test_token_survives_a_restart_and_is_accepted_once(start_serve, ca, tmp_path):
    state = ("--state-dir", tmp_path / "state", "--workers", "2")
    server = start_serve(*state)
    tokens: list[bytes] = []
    assert await connect_with(server, ca, tokens=tokens) == 200
    server.kill()
    wary = (*state, "--limit", "open_handshakes=0", "--stats")
    again = start_serve(*wary, listen=(f"127.0.0.1:{server.port}",))
    assert await connect_with(again, ca, tokens[0]) == 200
    assert await connect_with(again, ca, tokens[0]) == 200
    counters = counters_of(again)
    assert counters["tokens_accepted"] == 1
    assert counters["tokens_refused"] > 0
    assert counters["quic_retries_sent"] == counters["tokens_refused"]


async def test_token_of_a_server_with_another_secret_is_rejected(start_serve, ca, tmp_path):
    server = start_serve("--state-dir", tmp_path / "one")
    tokens: list[bytes] = []
    assert await connect_with(server, ca, tokens=tokens) == 200
    server.kill()
    flags = ("--state-dir", tmp_path / "other", "--limit", "open_handshakes=0", "--stats")
    again = start_serve(*flags, listen=(f"127.0.0.1:{server.port}",))
    assert await connect_with(again, ca, tokens[0]) == 200
    counters = counters_of(again)
    assert counters["tokens_accepted"] == 0
    assert counters["quic_retries_sent"] > 0


def test_secret_file_is_readable_by_its_owner_only(start_serve, tmp_path):
    start_serve("--state-dir", tmp_path / "state").kill()
    secret = tmp_path / "state" / "secret"
    kept = secret.read_bytes()
    assert len(kept) == 32
    assert secret.stat().st_mode & 0o7777 == 0o600
    start_serve("--state-dir", tmp_path / "state").kill()
    assert secret.read_bytes() == kept


@pytest.mark.parametrize(
    ("content", "mode", "code", "said"),
    [
        (bytes(31), 0o600, 65, "31 bytes"),
        (bytes(32), 0o644, 77, "accessible to other users"),
        (b"", 0o600, 65, "0 bytes"),
    ],
    ids=["short", "open", "empty"],
)
def test_invalid_secret_file_is_an_error(site, identity, tmp_path, content, mode, code, said):
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    secret.chmod(mode)
    flags = [
        "--state-dir",
        tmp_path,
        "--cert",
        identity.cert,
        "--key",
        identity.key,
        "--listen",
        "127.0.0.1:0",
    ]
    process = Process([pronghorn(), "serve", site.root, *flags])
    assert process.wait() == code
    assert said in process.lines[-1]
    assert str(secret) in process.lines[-1]
    assert secret.read_bytes() == content
    process.stop()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write every folder")
def test_server_without_a_writable_folder_runs_without_state(start, site, identity, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    command = [
        pronghorn(),
        "serve",
        site.root,
        "--listen",
        "127.0.0.1:0",
        "--cert",
        identity.cert,
        "--key",
        identity.key,
    ]
    server = start(command, env={"XDG_STATE_HOME": str(closed)})
    assert any("state is not saved" in line for line in server.lines)


def test_list_limits_shows_effective_values():
    process = Process(
        [pronghorn(), "serve", "--list-limits", "--limit", "idle-timeout=90s", "--workers", "3"]
    )
    assert process.wait() == 0, process.lines
    lines = process.stdout.decode().splitlines()
    assert next(line for line in lines if line.startswith("idle_timeout")).split()[1] == "90s"
    assert "3 workers" in lines[-1]
    process.stop()


def test_list_limits_includes_session_and_qpack_limits():
    asked = {
        "sessions": "10",
        "session_bytes": "64 KiB",
        "session_lifetime": "1h",
        "qpack_table_bytes": "0 B",
    }
    flags = [part for name, value in asked.items() for part in ("--limit", f"{name}={value}")]
    process = Process([pronghorn(), "serve", "--list-limits", *flags])
    assert process.wait() == 0, process.lines
    listed = {line.split()[0]: line for line in process.stdout.decode().splitlines() if line}
    for name, value in asked.items():
        assert listed[name].removeprefix(name).strip().startswith(value)
    process.stop()


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("idle_timout=5s", "did you mean idle_timeout?"),
        ("idle_timeout=5", "a time, such as 30s"),
        ("connections=0", "must be between 1 and"),
        ("connections", "NAME=VALUE"),
    ],
)
def test_invalid_limit_is_an_error_with_a_hint(limit, said):
    process = Process([pronghorn(), "serve", "--limit", limit])
    assert process.wait() == 2
    assert said in "\n".join(process.lines)
    process.stop()


async def test_slow_head_over_tls_times_out(start_serve, ca):
    server = start_serve("--limit", "head_timeout=500ms", "--stats")
    context = ssl.create_default_context(cafile=str(ca))
    context.set_alpn_protocols(["http/1.1"])
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
    )
    writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
    assert await asyncio.wait_for(reader.read(), DEADLINE_SECONDS) == b""
    writer.close()
    assert counters_of(server)["head_timeouts"] == 1
