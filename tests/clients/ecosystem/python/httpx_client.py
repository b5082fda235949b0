"""HTTPX, over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager

import httpx
from scenarios import Answer, Client, main


class Httpx(Client):
    def __init__(self, protocol: str, ca: str):
        trust = ssl.create_default_context(cafile=ca)
        self.client = httpx.AsyncClient(verify=trust, http2=protocol == "2", timeout=60)

    async def __aenter__(self):
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *exception):
        await self.client.__aexit__(*exception)

    @asynccontextmanager
    async def send(self, method, url, content=None):
        async with self.client.stream(method, url, content=content) as response:
            yield Answer(response.status_code, response.http_version, response.aiter_bytes())


main(Httpx)
