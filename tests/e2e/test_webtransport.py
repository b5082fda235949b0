"""WebTransport sessions of aioquic and Chromium, with the engine's example and that of the crate
`server`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from conftest import end, random_bytes
from harness.clients.aioquic_h3 import h3_connection
from harness.clients.aioquic_webtransport import (
    WebTransportClient,
    application_error,
    capsule,
    close_capsule,
    webtransport,
)
from harness.clients.chromium import NAME, chromium_options, common_flags
from harness.clients.firefox import common_preferences, firefox_options, protocol_preferences
from harness.server import REPOSITORY, Server, webtransport_command, webtransport_echo_command
from harness.waiting import DEADLINE_SECONDS

BROWSER_SESSIONS = REPOSITORY / "tests" / "clients" / "browser" / "webtransport.mjs"

SETTINGS = {0x08: 1, 0x33: 1, 0x2B603742: 1, 0xC671706A: 1, 0x14E9CD29: 1}
"""Extended CONNECT, HTTP datagrams, and one session in drafts 02, 07 and 13, which Safari requires.
"""

FLOW_CONTROL = {0x2B61, 0x2B64, 0x2B65}
"""Session flow control in drafts 13 and 14: for data, unidirectional and bidirectional streams."""

H3_ID_ERROR, H3_DATAGRAM_ERROR, H3_REQUEST_REJECTED, H3_MESSAGE_ERROR = 0x108, 0x33, 0x10B, 0x10E
SESSION_GONE, BUFFERED_STREAM_REJECTED = 0x170D7B68, 0x3994BD84


@pytest.fixture(
    scope="module",
    params=[webtransport_command, webtransport_echo_command],
    ids=["engine", "server"],
)
def example(request, identity):
    """Starts each example, once for all tests of this file."""
    server = Server(request.param(identity))
    yield server
    end([server])


@pytest.fixture
async def client(example, identity):
    async with webtransport(example.port, identity.ca) as client:
        yield client


async def echo(client: WebTransportClient, session: int, content: bytes) -> None:
    """Echoes content on a bidirectional stream."""
    stream = client.open(session)
    client.send(stream, content, end=True)
    await client.until(lambda: client.streams[stream].is_over)
    assert client.streams[stream].content == content


async def last_end(example: Server, identity) -> str:
    async with h3_connection(f"https://localhost:{example.port}", identity.ca) as other:
        return (await other.fetch("/last")).body.decode()


async def test_settings_offer_each_supported_draft(client):
    assert client.http.received_settings.items() >= SETTINGS.items()
    # A partial offer of session flow control would leave clients without credit.
    assert not client.http.received_settings.keys() & FLOW_CONTROL


async def test_flow_control_capsules_without_an_offer_are_ignored(client):
    session = await client.session("/echo")
    # WT_MAX_DATA and WT_MAX_STREAMS of both kinds, as Safari sends them.
    for kind in (0x190B4D3D, 0x190B4D3F, 0x190B4D40):
        client.send_content(session, capsule(kind, bytes([0x40, 0x64])))
    await echo(client, session, random_bytes(5000))


async def test_bidirectional_streams_are_echoed(client):
    session = await client.session("/echo")
    for size in [0, 1, 5000, 300_000]:
        await echo(client, session, random_bytes(size))


async def test_unidirectional_stream_is_echoed_on_a_server_stream(client):
    session = await client.session("/echo")
    content = random_bytes(40_000)
    client.send(client.open(session, uni=True), content, end=True)
    await client.until(lambda: any(stream.is_over for stream in client.streams.values()))
    ((number, stream),) = client.streams.items()
    assert number % 4 == 3
    assert stream.content == content


async def test_datagrams_are_echoed(client):
    session = await client.session("/echo")
    for size in [0, 1, 1000]:
        client.datagrams.clear()
        client.send_datagram(session, random_bytes(size))
        await client.until(lambda: client.datagrams)
        assert client.datagrams == [(session, random_bytes(size))]


async def test_many_parallel_streams_are_echoed(client):
    session = await client.session("/echo")
    streams = {client.open(session): random_bytes(3000, f"{number}") for number in range(90)}
    for stream, content in streams.items():
        client.send(stream, content, end=True)
    await client.until(lambda: all(client.streams[stream].is_over for stream in streams))
    assert {stream: bytes(client.streams[stream].content) for stream in streams} == streams


async def test_server_opens_streams_and_closes_with_code_and_reason(client):
    session = await client.session("/greet")
    await client.until(
        lambda: len([stream for stream in client.streams.values() if stream.is_over]) == 2
    )
    greetings = {
        number % 4: (number, bytes(stream.content)) for number, stream in client.streams.items()
    }
    assert greetings[3][1] == b"greetings"
    number, question = greetings[1]
    assert question == b"who is there?"
    client.send(number, "nobody, grüße".encode(), end=True)
    await client.until(lambda: client.connects[session].is_over)
    assert client.closed_with(session) == (1234, "nobody, grüße")


async def test_server_gets_code_and_reason_of_the_close(client, example, identity):
    session = await client.session("/echo")
    client.send_content(session, close_capsule(4_000_000_000, "done here"), end=True)
    await client.until(lambda: client.connects[session].is_over)
    # The application learns of it after the client sees the end.
    told = "the peer closed the session with code 4000000000: done here"
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await last_end(example, identity) != told:
            pass


async def test_streams_are_reset_when_their_session_closes(client):
    session = await client.session("/echo")
    stream = client.open(session)
    client.send(stream, b"unfinished")
    await client.until(lambda: client.streams[stream].content == b"unfinished")
    client.send_content(session, close_capsule(0, ""), end=True)
    await client.until(lambda: client.streams[stream].reset is not None)
    assert (client.streams[stream].reset, client.streams[stream].stopped) == (
        SESSION_GONE,
        SESSION_GONE,
    )


async def test_reset_codes_are_echoed(client):
    session = await client.session("/echo")
    stream = client.open(session)
    client.send(stream, b"begun")
    await client.until(lambda: client.streams[stream].content == b"begun")
    client.reset(stream, application_error(300))
    await client.until(lambda: client.streams[stream].reset is not None)
    assert client.streams[stream].reset == application_error(300)


async def test_unknown_capsules_and_frames_of_any_length_are_skipped(client):
    session = await client.session("/echo")
    for _ in range(20):
        client.send_content(session, capsule(0x3F, bytes(50_000)) + capsule(0x29, b""))
    client.send_content(session, capsule(0, b"by the stream"))
    await client.until(lambda: client.datagrams)
    assert client.datagrams == [(session, b"by the stream")]


@pytest.mark.parametrize(
    "content",
    [close_capsule(0, "x" * 1025), capsule(0x2843, b"\0\0\0"), close_capsule(0, "") + b"\0"],
)
async def test_malformed_capsule_resets_the_session(client, content):
    session = await client.session("/echo")
    client.send_content(session, content)
    await client.until(lambda: client.connects[session].reset is not None)
    assert client.connects[session].reset == H3_MESSAGE_ERROR


async def test_rejected_session_leaves_the_connection_usable(client):
    refused = client.ask("/nowhere")
    await client.until(lambda: refused in client.status)
    assert client.status[refused] == 404
    await echo(client, await client.session("/echo"), b"still there")


async def test_second_session_is_rejected_as_unprocessed(client):
    session = await client.session("/echo")
    second = client.ask("/echo")
    await client.until(lambda: client.connects[second].reset is not None)
    assert client.connects[second].reset == H3_REQUEST_REJECTED
    await echo(client, session, b"the first one is well")


async def test_streams_before_their_session_are_buffered(client):
    """The packet of the request arrives last."""
    session = client._quic.get_next_available_stream_id()
    assert session == 0
    client._quic._local_next_stream_id_bidi = 4
    stream = client.open(session)
    client.send(stream, b"too early", end=True)
    client.send_datagram(session, b"so is this")
    await client.ping()
    client._quic._local_next_stream_id_bidi = 0
    assert client.ask("/echo") == session
    client._quic._local_next_stream_id_bidi = 8
    await client.until(lambda: client.streams[stream].is_over and client.datagrams)
    assert client.streams[stream].content == b"too early"
    assert client.datagrams == [(session, b"so is this")]


async def test_streams_without_a_session_are_limited_in_number_and_time(start, identity):
    server = start(
        webtransport_command(
            identity, "--limit", "webtransport_early_streams=3", "--limit", "head_timeout=1s"
        )
    )
    async with webtransport(server.port, identity.ca) as client:
        streams = [client.open(400, uni=uni) for uni in (True, False, True, False)]
        for stream in streams:
            client.send(stream, b"for nobody")
        await client.until(
            lambda: all(client.streams[stream].stopped is not None for stream in streams)
        )
        assert {client.streams[stream].stopped for stream in streams} == {BUFFERED_STREAM_REJECTED}
        assert {client.streams[stream].reset for stream in streams if stream % 4 == 0} == {
            BUFFERED_STREAM_REJECTED
        }
        # None of these count against later streams.
        await echo(client, await client.session("/echo"), b"well")


@pytest.mark.parametrize(
    ("datagram", "code"),
    [
        (b"", H3_DATAGRAM_ERROR),
        (b"\x40", H3_DATAGRAM_ERROR),
        (b"\xd0" + bytes(7), H3_DATAGRAM_ERROR),
    ],
)
async def test_datagram_without_a_stream_closes_the_connection(client, datagram, code):
    client.send_raw_datagram(datagram)
    await client.wait_closed()
    assert client.terminated.error_code == code


async def test_stream_with_an_invalid_session_id_closes_the_connection(client):
    client.send(client.open(3, uni=True), b"")
    await client.wait_closed()
    assert client.terminated.error_code == H3_ID_ERROR


def uses_everything(example, identity, options, reset) -> None:
    """Runs `webtransport.mjs` in a browser and checks its output.

    `reset`: the error's attributes when the peer resets a stream with code 77.
    """
    leaf = x509.load_pem_x509_certificates(identity.cert.read_bytes())[0]
    asked = {
        "origin": f"https://{NAME}:{example.port}",
        "hash": base64.b64encode(hashlib.sha256(leaf.public_bytes(Encoding.DER)).digest()).decode(),
        **options,
    }
    done = subprocess.run(
        ["node", BROWSER_SESSIONS, json.dumps(asked)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["datagrams"] == ["one", "two", "three"]
    assert seen["bidi"] == [0, 1, 100_000]
    assert seen["uni"] == "one way"
    assert seen["many"] == 80
    assert seen["reset"] == reset
    assert seen["greetings"] == {"uni": "greetings", "bidi": "who is there?"}
    assert seen["closedByServer"] == {"closeCode": 1234, "reason": "the browser, grüße"}
    assert seen["last"] == "the peer closed the session with code 99: good bye"
    assert seen["refused"] == "WebTransportError"


def test_chromium_opens_webtransport_sessions(example, identity):
    options = chromium_options(common_flags(identity.spki_hash))
    uses_everything(example, identity, options, {"source": "stream", "code": 77})


def test_firefox_opens_webtransport_sessions(example, identity):
    preferences = common_preferences() | protocol_preferences("h3", NAME, example.port)
    # Firefox's error has neither source nor code.
    uses_everything(example, identity, firefox_options(preferences), {})
