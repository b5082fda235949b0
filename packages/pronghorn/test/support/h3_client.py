"""An HTTP/3 client (aioquic) that tests drive.

It reads one JSON object per line on stdin for each request, and writes one on stdout for each
response.

A request: id, port, host, method, path, headers, body (base64, or null for none), pieces (number of
pieces in which the body is sent), late (base64: the end of the body, sent when the response is
complete), abort (reset after the response head; "connection" closes the connection instead, "now"
resets at once), idle_timeout (seconds), connection (a name: requests with the same name share the
connection), server_name, cert_file_name and key_file_name (the client certificate), early (sent in
0-RTT with the ticket of an earlier connection), rebind (sends from another port from here on, as
after a NAT rebinding).
"""

import asyncio
import base64
import json
import socket
import ssl
import sys

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3_ALPN, ErrorCode, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, ProtocolNegotiated, StreamReset


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = None
        self.streams = {}

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated) and self.http is None:
            self.http = H3Connection(self._quic)
        if isinstance(event, ConnectionTerminated):
            for queue in self.streams.values():
                queue.put_nowait(("closed", event.reason_phrase or str(event.error_code)))
        if isinstance(event, StreamReset) and event.stream_id in self.streams:
            self.streams[event.stream_id].put_nowait(("reset", event.error_code))
        if self.http is None:
            return
        for http_event in self.http.handle_event(event):
            if isinstance(http_event, (HeadersReceived, DataReceived)) and http_event.stream_id in self.streams:
                self.streams[http_event.stream_id].put_nowait(("event", http_event))

    async def request(self, wanted):
        stream = self._quic.get_next_available_stream_id()
        queue = self.streams[stream] = asyncio.Queue()
        body = None if wanted.get("body") is None else base64.b64decode(wanted["body"])
        late = base64.b64decode(wanted.get("late") or "")
        headers = [
            (b":method", wanted["method"].encode()),
            (b":scheme", b"https"),
            (b":authority", wanted["host"].encode()),
            (b":path", wanted["path"].encode()),
        ]
        headers += [(name.lower().encode(), value.encode("latin1")) for name, value in wanted["headers"]]
        self.http.send_headers(stream, headers, end_stream=body is None)
        if body is not None:
            size = max(1, -(-len(body) // max(1, wanted.get("pieces", 1))))
            pieces = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
            for index, piece in enumerate(pieces):
                self.http.send_data(stream, piece, end_stream=index + 1 == len(pieces) and not wanted.get("unfinished") and not late)
                self.transmit()
                await asyncio.sleep(0)
        self.transmit()
        if wanted.get("abort") == "now":
            # The ping ensures that the earlier data arrives first.
            await self.ping()
            self._quic.reset_stream(stream, ErrorCode.H3_REQUEST_CANCELLED)
            self._quic.stop_stream(stream, ErrorCode.H3_REQUEST_CANCELLED)
            self.transmit()
            return {"aborted": True}
        answer = {"informational": []}
        content = b""
        while True:
            kind, event = await queue.get()
            if kind != "event":
                return {**answer, "error": f"{kind}: {event}", "body": base64.b64encode(content).decode()}
            if isinstance(event, HeadersReceived):
                fields = [(name.decode(), value.decode("latin1")) for name, value in event.headers]
                status = dict(fields).get(":status")
                rest = [field for field in fields if not field[0].startswith(":")]
                if status is not None and status.startswith("1"):
                    answer["informational"].append({"status": int(status), "headers": rest})
                elif status is not None:
                    answer["status"] = int(status)
                    answer["headers"] = rest
                    if wanted.get("abort") in ("head", "connection"):
                        self._quic.stop_stream(stream, ErrorCode.H3_REQUEST_CANCELLED)
                        self.transmit()
                        return {"aborted": True, **answer}
            else:
                content += event.data
            if event.stream_ended:
                answer["body"] = base64.b64encode(content).decode()
                if late:
                    self.http.send_data(stream, late, end_stream=True)
                    # Until the whole response has arrived.
                    while (open_stream := self._quic._streams.get(stream)) and not open_stream.sender.is_finished:
                        await self.ping()
                del self.streams[stream]
                return answer


def head(wanted):
    """Sends HEAD with curl: aioquic rejects a content-length without a body even for HEAD."""
    # Importing it takes as long as everything else, and few tests need it.
    from curl_cffi import CurlHttpVersion, requests

    session = requests.Session(verify=False, http_version=CurlHttpVersion.V3ONLY)
    answer = session.head(f"https://127.0.0.1:{wanted['port']}{wanted['path']}", headers=dict(wanted["headers"]))
    assert answer.http_version == CurlHttpVersion.V3, answer.http_version
    return {"status": answer.status_code, "headers": list(answer.headers.multi_items()), "body": base64.b64encode(answer.content).decode()}


async def rebind(client):
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind(("::", 0))
    before = client._transport
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: client, sock=sock)
    before.close()


connections = {}


async def open_client(wanted, ticket=None, on_ticket=None):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE, idle_timeout=wanted.get("idle_timeout", 60))
    configuration.server_name = wanted.get("server_name", "localhost")
    if "cert_file_name" in wanted:
        configuration.load_cert_chain(wanted["cert_file_name"], wanted["key_file_name"])
    configuration.session_ticket = ticket
    context = connect(
        wanted.get("address", "127.0.0.1"),
        wanted["port"],
        configuration=configuration,
        create_protocol=Client,
        session_ticket_handler=on_ticket,
        wait_connected=ticket is None,
    )
    client = await context.__aenter__()
    if ticket is not None:
        client.http = H3Connection(client._quic)
    return context, client


closings = set()


def leave(context, client):
    """Closes a connection without waiting for its closing period of three probe timeouts."""
    client.close()
    closing = asyncio.ensure_future(context.__aexit__(None, None, None))
    closings.add(closing)
    closing.add_done_callback(closings.discard)


async def ticket_of(wanted):
    """Returns a session ticket for resumption from a new connection."""
    given = asyncio.get_running_loop().create_future()
    context, client = await open_client(wanted, on_ticket=lambda ticket: given.done() or given.set_result(ticket))
    try:
        return await asyncio.wait_for(given, 30)
    finally:
        leave(context, client)


async def serve(wanted):
    answer = {}
    try:
        name = wanted.get("connection")
        if wanted["method"] == "HEAD":
            answer = await asyncio.to_thread(head, wanted)
        elif name is None:
            ticket = await ticket_of(wanted) if wanted.get("early") else None
            context, client = await open_client(wanted, ticket)
            try:
                answer = await asyncio.wait_for(client.request(wanted), 30)
                if ticket is not None:
                    answer["early"] = client._quic.tls.early_data_accepted
                if "certificate" in wanted:
                    answer["certificate"] = client._quic.tls._peer_certificate.subject.rfc4514_string()
            finally:
                leave(context, client)
        else:
            if name not in connections:
                connections[name] = asyncio.ensure_future(open_client(wanted))
            _, client = await connections[name]
            if wanted.get("rebind"):
                await rebind(client)
            answer = await asyncio.wait_for(client.request(wanted), 30)
    except Exception as error:  # The test decides what an error means.
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps({"id": wanted["id"], **answer}), flush=True)


async def main():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks = set()
    while line := await reader.readline():
        task = asyncio.ensure_future(serve(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


asyncio.run(main())
