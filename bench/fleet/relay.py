"""A relay that delivers what a server sends only after a while, as a slow signer would."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

QUEUED = 4096
"""Pieces of one direction that wait; the server is read no further beyond."""


class Relay:
    """Accepts connections, and connects each to a port."""

    def __init__(self, port: int, delay: float):
        self.target, self.delay = port, delay
        self.loop = asyncio.new_event_loop()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled when the relay ends, which asyncio would log as an error of this connection.
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
            with contextlib.closing(far_writer):
                # Either end closing ends both.
                tasks = [
                    asyncio.create_task(self.pass_on(reader, far_writer, 0)),
                    asyncio.create_task(self.pass_on(far_reader, writer, self.delay)),
                ]
                _, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in others:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float
    ) -> None:
        """Delivers each piece `delay` seconds after it arrived, in order."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUED)
        reading = asyncio.create_task(self.read(reader, waiting))
        try:
            while True:
                arrived, data = await waiting.get()
                await asyncio.sleep(arrived + delay - self.loop.time())
                if not data:
                    return
                writer.write(data)
                await writer.drain()
        finally:
            reading.cancel()

    async def read(self, reader: asyncio.StreamReader, waiting: asyncio.Queue) -> None:
        data = b"-"
        while data:
            try:
                data = await reader.read(1 << 16)
            except OSError:
                data = b""
            await waiting.put((self.loop.time(), data))


@contextlib.contextmanager
def delaying(port: int, delay: float) -> Iterator[int]:
    """Runs a relay to a port on a thread; yields the relay's port."""
    relay = Relay(port, delay)
    server = relay.loop.run_until_complete(asyncio.start_server(relay.accept, "127.0.0.1", 0))
    thread = threading.Thread(target=relay.loop.run_forever, name="relay", daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        relay.loop.call_soon_threadsafe(relay.loop.stop)
        thread.join()
        relay.loop.run_until_complete(end(server))
        relay.loop.close()


async def end(server: asyncio.Server) -> None:
    """Stops to accept, and ends all connections."""
    server.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # Transports close their sockets in the next iteration.
    await asyncio.sleep(0)
