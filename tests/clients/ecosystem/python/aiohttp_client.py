"""aiohttp, which only supports HTTP/1.1."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager

import aiohttp
from scenarios import Answer, Client, main


class Aiohttp(Client):
    def __init__(self, protocol: str, ca: str):
        self.trust = ssl.create_default_context(cafile=ca)

    async def __aenter__(self):
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self.trust))
        return self

    async def __aexit__(self, *exception):
        await self.session.close()

    @asynccontextmanager
    async def send(self, method, url, content=None):
        async with self.session.request(method, url, data=content) as response:
            protocol = f"HTTP/{response.version.major}.{response.version.minor}"
            yield Answer(response.status, protocol, response.content.iter_any())


main(Aiohttp)
