"""WebSocket against a client that others wrote, and what it makes of the handshake."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus


def client_context(ca) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    context.set_alpn_protocols(["http/1.1"])
    return context


@pytest.mark.parametrize("path", ["/ws", "/ws?deflate", "/ws?contexts"])
@pytest.mark.parametrize("compression", [None, "deflate"])
def test_websockets_client_gets_its_messages_back(handler, ca, path, compression):
    async def run() -> list[str]:
        url = f"wss://{handler.host}:{handler.port}{path}"
        async with connect(
            url, ssl=client_context(ca), compression=compression, subprotocols=["other", "echo"], max_size=1 << 20
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


def test_websockets_client_is_refused_where_there_is_none(handler, ca):
    async def run() -> None:
        async with connect(f"wss://{handler.host}:{handler.port}/elsewhere", ssl=client_context(ca)):
            raise AssertionError("there is no WebSocket")

    with pytest.raises(InvalidStatus) as refused:
        asyncio.run(run())
    assert refused.value.response.status_code == 404
