"""A WebTransport client (aioquic) for the server of webtransport.test.js.

It prints its observations as JSON. Arguments: port, certificate file, and optionally the scene
instead of all of `main`: "echo" if the server only echoes, or one of `SCENES`.
"""

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "tests"))

from harness.clients.aioquic_webtransport import application_error, close_capsule, webtransport  # noqa: E402


async def echo(client, session, content, seen):
    stream = client.open(session)
    client.send(stream, content, end=True)
    await client.until(lambda: client.streams[stream].is_over)
    seen["echoed"].append(bytes(client.streams[stream].content) == content)


async def echoes(client, session, seen):
    for size in (0, 1, 5000, 300_000):
        await echo(client, session, bytes(range(256)) * (size // 256) + b"x" * (size % 256), seen)
    own = set(client.streams)
    client.send(client.open(session, uni=True), b"one way", end=True)
    await client.until(lambda: any(stream.is_over for number, stream in client.streams.items() if number not in own))
    seen["uni"] = [
        [number % 4, stream.content.decode()] for number, stream in client.streams.items() if number not in own
    ]
    client.send_datagram(session, b"datagram")
    await client.until(lambda: client.datagrams)
    seen["datagrams"] = [data.decode() for _, data in client.datagrams]


async def stop(client, seen):
    session = await client.session("/half")
    stream = client.open(session)
    client.send(stream, b"first, ")
    await client.until(lambda: client.streams[stream].content == b"here")
    client.stop(stream, application_error(5))
    await client.until(lambda: client.datagrams)
    client.send(stream, b"second", end=True)
    await client.until(lambda: len(client.datagrams) == 2)
    seen["told"] = [data.decode() for _, data in client.datagrams]


async def mirror(client, seen):
    session = await client.session("/mirror")
    stream = client.open(session)
    client.send(stream, b"content")
    await client.until(lambda: client.streams[stream].content == b"content")
    client.stop(stream, application_error(6))
    await client.until(lambda: client.datagrams)
    seen["told"] = [data.decode() for _, data in client.datagrams]


async def throw(client, seen):
    session = await client.session("/throws")
    streams = [client.open(session) for _ in range(2)]
    for stream in streams:
        client.send(stream, b"content", end=True)
    await client.until(lambda: len(client.datagrams) == 2)
    await client.until(lambda: all(client.streams[stream].is_over for stream in streams))
    seen["told"] = [data.decode() for _, data in client.datagrams]


async def cut(client, seen):
    session = await client.session("/cut")
    # All in one flight.
    for uni in (True, False) * 4:
        client.send(client.open(session, uni=uni), b"content")
    client.send_content(session, close_capsule(3, "over"), end=True)
    await client.until(lambda: client.connects[session].is_over)


SCENES = {"stop": stop, "mirror": mirror, "throw": throw, "cut": cut}


async def scene(port, ca, name):
    seen = {}
    async with webtransport(port, ca) as client:
        await SCENES[name](client, seen)
    print(json.dumps(seen))


async def main(port, ca, only_echo):
    seen = {"echoed": []}
    async with webtransport(port, ca) as client:
        session = await client.session("/echo?user=alice")
        await echoes(client, session, seen)
        if only_echo:
            return print(json.dumps(seen))

        # A stream that this side resets, and one that the server resets.
        stream = client.open(session)
        client.send(stream, b"wait")
        await client.until(lambda: client.streams[stream].content == b"wait")
        client.reset(stream, application_error(7))
        stream = client.open(session)
        client.send(stream, b"reset me")
        await client.until(lambda: client.streams[stream].reset is not None)
        seen["reset"] = client.streams[stream].reset == application_error(9)
        await echo(client, session, b"and on", seen)
        client.send_content(session, close_capsule(4000, "done here"), end=True)
        await client.until(lambda: client.connects[session].is_over)

    async with webtransport(port, ca) as client:
        session = await client.session("/greet")
        await client.until(lambda: len([stream for stream in client.streams.values() if stream.content]) == 2)
        greetings = {number % 4: (number, bytes(stream.content).decode()) for number, stream in client.streams.items()}
        seen["greetings"] = [greetings[3][1], greetings[1][1]]
        client.send(greetings[1][0], "nobody, grüße".encode(), end=True)
        await client.until(lambda: client.connects[session].is_over)
        seen["closed"] = client.closed_with(session)

    async with webtransport(port, ca) as client:
        session = client.ask("/refused")
        await client.until(lambda: session in client.status)
        seen["refused"] = client.status[session]
        session = client.ask("/nowhere")
        await client.until(lambda: session in client.status)
        seen["nowhere"] = client.status[session]
        # Disconnects without closing the session.
        await client.session("/later")
    print(json.dumps(seen))


if sys.argv[3:] and sys.argv[3] in SCENES:
    asyncio.run(scene(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
else:
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:] == ["echo"]))
