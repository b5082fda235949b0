"""Niquests, over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

from contextlib import asynccontextmanager

import niquests
from scenarios import Answer, Client, main


class Niquests(Client):
    def __init__(self, protocol: str, ca: str):
        self.ca = ca
        self.session = niquests.AsyncSession(disable_http2=protocol == "1.1", disable_http3=True)

    async def __aenter__(self):
        await self.session.__aenter__()
        return self

    async def __aexit__(self, *exception):
        await self.session.__aexit__(*exception)

    @asynccontextmanager
    async def send(self, method, url, content=None):
        response = await self.session.request(
            method, url, data=content, verify=self.ca, stream=True, timeout=60
        )
        try:
            protocol = {11: "HTTP/1.1", 20: "HTTP/2", 30: "HTTP/3"}[response.raw.version]
            yield Answer(response.status_code, protocol, await response.iter_content(65536))
        finally:
            await response.close()


main(Niquests)
