"""The scenarios of tests/e2e/test_ecosystem.py for asynchronous Python clients."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
CANCELLED, BYSTANDERS = 4, 3


@dataclass
class Answer:
    """A response whose content has not been read."""

    status: int
    protocol: str
    content: AsyncIterator[bytes]


class Client:
    """One client library. `protocol` is `1.1` or `2`."""

    def __init__(self, protocol: str, ca: str):
        raise NotImplementedError

    def send(self, method: str, url: str, content=None) -> AbstractAsyncContextManager[Answer]:
        """Sends a request.

        Content is bytes, or an asynchronous iterator of unknown length. Leaving the context early
        cancels.
        """
        raise NotImplementedError


async def whole(client: Client, method: str, url: str, content=None) -> dict:
    """Sends a request and reads its response to the end."""
    async with client.send(method, url, content) as answer:
        return await finish(answer)


async def finish(answer: Answer, on_piece=None) -> dict:
    digest, size, text = hashlib.sha256(), 0, b""
    async for piece in answer.content:
        digest.update(piece)
        size += len(piece)
        text = (text + piece)[:1000]
        if on_piece:
            await on_piece(size)
    return {
        "status": answer.status,
        "protocol": answer.protocol,
        "bytes": size,
        "sha256": digest.hexdigest(),
        "text": text.decode("latin-1") if size < 1000 else "",
    }


async def pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 65536):
        yield content[start : start + 65536]


async def small(client: Client, url, file: Path) -> list[dict]:
    return [await whole(client, "GET", url("/small.txt")) for _ in range(2)]


async def download(client: Client, url, file: Path) -> list[dict]:
    return [await whole(client, "GET", url("/large.bin"))]


async def upload(client: Client, url, file: Path) -> list[dict]:
    return [await whole(client, "POST", url("/upload"), file.read_bytes())]


async def stream(client: Client, url, file: Path) -> list[dict]:
    return [await whole(client, "POST", url("/upload"), pieces(file.read_bytes()))]


async def refused(client: Client, url, file: Path) -> list[dict]:
    refusal = await whole(client, "POST", url("/forbidden"), pieces(file.read_bytes()))
    return [refusal, await whole(client, "GET", url("/small.txt"))]


async def cancel(client: Client, url, file: Path) -> list[dict]:
    """The bystanders read slowly until the other downloads are cancelled, so that they are still in
    progress.
    """
    # A connection that all can share.
    first = await whole(client, "GET", url("/small.txt"))
    cancelled = asyncio.Event()
    started = asyncio.Semaphore(0)

    async def bystander() -> dict:
        async with client.send("GET", url("/large.bin")) as answer:
            paused_at = -1

            async def pace(size: int) -> None:
                nonlocal paused_at
                if paused_at < 0:
                    started.release()
                if not cancelled.is_set() and size // MIB > paused_at:
                    paused_at = size // MIB
                    await asyncio.sleep(0.01)

            return await finish(answer, pace)

    async def cancel_one() -> None:
        async with client.send("GET", url("/large.bin")) as answer:
            async for _ in answer.content:
                return

    bystanders = [asyncio.create_task(bystander()) for _ in range(BYSTANDERS)]
    for _ in bystanders:
        await started.acquire()
    await asyncio.gather(*(cancel_one() for _ in range(CANCELLED)))
    cancelled.set()
    return [
        first,
        *await asyncio.gather(*bystanders),
        await whole(client, "GET", url("/small.txt")),
    ]


def idle(seconds: int):
    async def rest(client: Client, url, file: Path) -> list[dict]:
        first = await whole(client, "GET", url("/small.txt"))
        await asyncio.sleep(seconds)
        return [first, await whole(client, "GET", url("/small.txt"))]

    return rest


async def shutdown(client: Client, url, file: Path) -> list[dict]:
    """Reads the first bytes, reports it, and continues when told to."""
    async with client.send("GET", url("/large.bin")) as answer:
        told = False

        async def wait(_size: int) -> None:
            nonlocal told
            if not told:
                told = True
                print("reading", flush=True)
                await asyncio.to_thread(sys.stdin.readline)

        return [await finish(answer, wait)]


SCENARIOS = {
    each.__name__: each for each in (small, download, upload, stream, refused, cancel, shutdown)
}


def find(scenario: str):
    """Returns the function of a scenario; `idle-31` rests for 31 seconds."""
    name, _, seconds = scenario.partition("-")
    return idle(int(seconds)) if name == "idle" else SCENARIOS[scenario]


def main(client: type[Client]) -> None:
    protocol, scenario, origin, ca, file, tag = sys.argv[1:]

    async def run() -> list[dict]:
        async with client(protocol, ca) as started:
            return await find(scenario)(started, lambda path: f"{origin}{path}?{tag}", Path(file))

    print(json.dumps({"answers": asyncio.run(run())}))
