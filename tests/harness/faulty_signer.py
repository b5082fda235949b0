"""A Keyless server in the test process, whose faults the test controls."""

from __future__ import annotations

import asyncio
import ssl
import struct
import threading
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, utils

from . import keyless
from .waiting import DEADLINE_SECONDS

INTERNAL = 4
"""Error code of the protocol."""

DIGESTS = {5: hashes.SHA256(), 6: hashes.SHA384(), 7: hashes.SHA512()}
"""Digests by the last three bits of an opcode."""


class FaultySigner:
    """Signs, unless `fault` is set: `lie` (signs something else), `mute` (answers pings only),
    `refuse` (answers with an error), `hold` (waits for `release`), `close` (closes the connection
    at a request). It waits for `delay` seconds before it signs.
    """

    def __init__(self, folder: Path, keys: list):
        self.keys = {}
        for key in keys:
            self.add(key)
        self.fault = ""
        self.delay = 0.0
        self.port = 0
        self.held: list[asyncio.Event] = []
        self.requests = 0
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(folder / "localhost.pem", folder / "localhost-key.pem")
        self._context.load_verify_locations(folder / "ca.pem")
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task] = set()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    def __enter__(self) -> FaultySigner:
        self._thread.start()
        assert self._ready.wait(DEADLINE_SECONDS)
        return self

    def __exit__(self, *_exception) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self, key) -> None:
        self.keys[keyless.ski(key.public_key())] = key

    def release(self) -> None:
        """Signs what is held, and goes on without the fault."""

        def run() -> None:
            self.fault = ""
            for event in self.held:
                event.set()
            self.held.clear()

        self._loop.call_soon_threadsafe(run)

    def disconnect(self) -> None:
        """Closes all connections, and accepts no others."""

        def run() -> None:
            self._server.close()
            for task in list(self._tasks):
                task.cancel()

        self._loop.call_soon_threadsafe(run)

    async def _run(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._keep(asyncio.current_task())
        try:
            while True:
                _, _, length, number = struct.unpack(">BBHI", await reader.readexactly(8))
                items = keyless.items(await reader.readexactly(length))
                self._keep(asyncio.create_task(self._answer(writer, number, items)))
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    def _keep(self, task: asyncio.Task) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, writer: asyncio.StreamWriter, number: int, items: dict) -> None:
        opcode, payload = items[keyless.OPCODE][0], items.get(keyless.PAYLOAD, b"")
        if opcode == keyless.PING:
            writer.write(keyless.message(number, keyless.PONG, payload))
            return
        self.requests += 1
        if self.fault == "hold":
            event = asyncio.Event()
            self.held.append(event)
            await event.wait()
        await asyncio.sleep(self.delay)
        match self.fault:
            case "mute":
                return
            case "close":
                writer.close()
                return
            case "refuse":
                answer = keyless.message(number, keyless.ERROR, bytes([INTERNAL]))
            case "lie":
                answer = keyless.message(
                    number, keyless.RESPONSE, self._sign(items, bytes(len(payload)))
                )
            case _:
                answer = keyless.message(number, keyless.RESPONSE, self._sign(items, payload))
        writer.write(answer)

    def _sign(self, items: dict, digest: bytes) -> bytes:
        opcode, key = items[keyless.OPCODE][0], self.keys[items[keyless.SKI]]
        algorithm = DIGESTS[opcode & 7]
        prehashed = utils.Prehashed(algorithm)
        if opcode & 0xF0 == keyless.ECDSA_SIGN_SHA256 & 0xF0:
            return key.sign(digest, ec.ECDSA(prehashed))
        if opcode & 0xF0 == keyless.RSA_PSS_SIGN_SHA256 & 0xF0:
            how = padding.PSS(padding.MGF1(algorithm), algorithm.digest_size)
            return key.sign(digest, how, prehashed)
        return key.sign(digest, padding.PKCS1v15(), prehashed)
