"""WebSocket with independent clients."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from harness.clients.chromium import NAME, chromium, common_flags, protocol_flags
from harness.server import REPOSITORY

CHROMIUM_SOCKETS = REPOSITORY / "tests" / "clients" / "chromium" / "websocket.mjs"


def client_context(ca) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    context.set_alpn_protocols(["http/1.1"])
    return context


@pytest.mark.parametrize("path", ["/ws", "/ws?deflate", "/ws?contexts"])
@pytest.mark.parametrize("compression", [None, "deflate"])
def test_websocket_messages_are_echoed_to_websockets(handler, ca, path, compression):
    async def run() -> list[str]:
        url = f"wss://{handler.host}:{handler.port}{path}"
        async with connect(
            url,
            ssl=client_context(ca),
            compression=compression,
            subprotocols=["other", "echo"],
            max_size=1 << 20,
        ) as socket:
            for message in ("", "x", "κόσμε" * 10_000, b"\x00\xff" * 100_000, "y" * 300):
                await socket.send(message)
                assert await socket.recv() == message
            await socket.send(iter(["in ", "three ", "parts"]))
            assert await socket.recv() == "in three parts"
            await (await socket.ping(b"there?"))
            await socket.close(4000, "done")
            assert (socket.close_code, socket.subprotocol) == (4000, "echo")
            return [extension.name for extension in socket.protocol.extensions]

    extensions = asyncio.run(run())
    assert extensions == (["permessage-deflate"] if compression and "?" in path else [])


def test_websocket_without_an_endpoint_is_rejected(handler, ca):
    async def run() -> None:
        async with connect(
            f"wss://{handler.host}:{handler.port}/elsewhere", ssl=client_context(ca)
        ):
            raise AssertionError("the WebSocket was accepted")

    with pytest.raises(InvalidStatus) as refused:
        asyncio.run(run())
    assert refused.value.response.status_code == 404


@pytest.mark.parametrize("browser_protocol", ["http/1.1", "h2"])
def test_chromium_uses_all_features(handler, identity, browser_protocol):
    asked = {
        "origin": f"https://{NAME}:{handler.port}",
        "flags": common_flags(identity.spki_hash)
        + protocol_flags(browser_protocol, NAME, handler.port),
        "chromium": str(chromium()),
    }
    done = subprocess.run(
        ["node", CHROMIUM_SOCKETS, json.dumps(asked)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    for query, echoed in seen["echoed"].items():
        assert echoed["same"] == [True] * 7, query
        assert echoed["inOrder"], query
        assert echoed["protocol"] == "echo"
        assert echoed["extensions"].startswith("permessage-deflate") == bool(query)
        assert ("no_context_takeover" in echoed["extensions"]) == (query == "?deflate")
        assert echoed["end"] == {"code": 4001, "reason": "from the page", "wasClean": True}
    assert seen["told"] == {"code": 4321, "reason": "grüße vom Server", "wasClean": True}
    assert seen["refused"] == {"code": 1009, "reason": "", "wasClean": True}
    assert seen["silent"] == {"code": 1005, "reason": "", "wasClean": True}
    assert seen["elsewhere"] == "/elsewhere did not open"
    # HTTP/2 has neither a 101 nor a key.
    fields = [{name.lower() for name in handshake["headers"]} for handshake in seen["handshakes"]]
    assert len(fields) == 6
    assert {"sec-websocket-accept" in each for each in fields} == {browser_protocol == "http/1.1"}
