"""A server that responds only when this many requests are open at once: COUNT."""

from __future__ import annotations

import asyncio
import resource
import sys
from contextlib import suppress


class Gathering:
    def __init__(self, awaited: int):
        self.awaited, self.there, self.all_there = awaited, 0, asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.there += 1
                if self.there == self.awaited:
                    self.all_there.set()
                await self.all_there.wait()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nthere")
        writer.close()


async def main() -> None:
    awaited = int(sys.argv[1])
    server = await asyncio.start_server(Gathering(awaited).serve, "127.0.0.1", 0, backlog=awaited)
    print(
        f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}",
        file=sys.stderr,
        flush=True,
    )
    await server.serve_forever()


# Each request has a connection of its own.
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
asyncio.run(main())
