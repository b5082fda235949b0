"""WebSocket clients over the three protocols that tests drive: `websockets` for the frames, and
asyncio, h2 and aioquic below.

One JSON object per line on stdin for each command, and one on stdout for each response or event.
Commands: {id, open: {protocol ("http/1.1", "h2" or "h3"), secure, port, path, headers, deflate}},
{id, text}, {id, binary (base64)}, {id, fragments: [...]}, {id, ping}, {id, close: [code, reason]},
{id, drop} (disconnects without a close frame), {id, raw (base64)} (unframed bytes). Events: {id,
status, headers}, {id, message (base64), binary, frames (their number), compressed}, {id, ping},
{id, pong}, {id, closed: code, reason}.
"""

import asyncio
import base64
import json
import os
import ssl
import sys

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3_ALPN, ErrorCode, FrameUnexpected, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, ProtocolNegotiated, StreamReset
from h2.connection import ConnectionInputs, ConnectionState, H2ConnectionStateMachine
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Opcode
from websockets.protocol import CLIENT, OPEN, Protocol

KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def say(**event):
    try:
        print(json.dumps(event), flush=True)
    except BrokenPipeError:
        # The tests have ended.
        os._exit(0)


def frame_size(data):
    """Returns the length of the frame at the start of `data`, 0 if it is incomplete."""
    if len(data) < 2:
        return 0
    length, size = data[1] & 127, 2
    if length > 125:
        size += 2 if length == 126 else 8
        length = int.from_bytes(data[2:size], "big")
    return size + length if len(data) >= size + length else 0


class Deflate(PerMessageDeflate):
    """Remembers whether the last message was compressed."""

    compressed = False

    def decode(self, frame, **kwargs):
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self.compressed = frame.rsv1
        return super().decode(frame, **kwargs)


class Http1:
    """`write`, `drop`; calls `client.on_head`, `client.on_data` and `client.on_end`."""

    async def open(self, client, wanted):
        context = None
        if wanted["secure"]:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, self.writer = await asyncio.open_connection("127.0.0.1", wanted["port"], ssl=context)
        lines = [f"GET {wanted['path']} HTTP/1.1", "host: localhost", "connection: Upgrade", "upgrade: websocket"]
        lines += [f"{name}: {value}" for name, value in [["sec-websocket-key", KEY], *client.headers]]
        self.writer.write("\r\n".join([*lines, "", ""]).encode("latin1"))
        head = await reader.readuntil(b"\r\n\r\n")
        first, *fields = head.decode("latin1").rstrip().split("\r\n")
        client.on_head(int(first.split()[1]), [line.split(": ", 1) for line in fields])
        asyncio.ensure_future(self.read(reader, client))

    async def read(self, reader, client):
        try:
            while data := await reader.read(1 << 16):
                client.on_data(data)
        except OSError:
            pass
        client.on_end()

    def write(self, data):
        self.writer.write(data)

    def end(self):
        self.writer.close()

    def drop(self):
        self.writer.transport.abort()


def extended_connect(wanted, client):
    pseudo = {
        ":method": "CONNECT",
        ":protocol": "websocket",
        ":scheme": "https",
        ":authority": "localhost",
        ":path": wanted["path"],
    }
    return [*pseudo.items(), *client.headers]


# h2 treats a GOAWAY as the end; RFC 9113, section 6.8, lets open streams continue.
H2ConnectionStateMachine._transitions[(ConnectionState.CLIENT_OPEN, ConnectionInputs.RECV_GOAWAY)] = (
    None,
    ConnectionState.CLIENT_OPEN,
)


class Http2:
    async def open(self, client, wanted):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        self.client = client
        reader, self.writer = await asyncio.open_connection("127.0.0.1", wanted["port"], ssl=context)
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="latin1"))
        self.http.initiate_connection()
        self.waiting = b""
        self.stream = None
        self.wanted = wanted
        self.flush()
        asyncio.ensure_future(self.read(reader))

    async def read(self, reader):
        try:
            while data := await reader.read(1 << 16):
                for event in self.http.receive_data(data):
                    self.on_event(event)
                self.flush()
        except (OSError, h2.exceptions.ProtocolError):  # The latter once this side has left.
            pass
        self.client.on_end()

    def on_event(self, event):
        if isinstance(event, h2.events.RemoteSettingsChanged) and self.stream is None:
            assert self.http.remote_settings.enable_connect_protocol, "RFC 8441, section 3"
            self.stream = self.http.get_next_available_stream_id()
            self.http.send_headers(self.stream, extended_connect(self.wanted, self.client))
        elif isinstance(event, h2.events.ResponseReceived):
            fields = [[name, value] for name, value in event.headers]
            self.client.on_head(int(dict(fields)[":status"]), fields)
        elif isinstance(event, h2.events.DataReceived):
            self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self.client.on_data(event.data)
        elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
            self.client.on_end()

    def flush(self):
        if self.stream is not None:
            size = min(len(self.waiting), self.http.local_flow_control_window(self.stream)) if self.waiting else 0
            for at in range(0, size, self.http.max_outbound_frame_size):
                self.http.send_data(self.stream, self.waiting[at : min(size, at + self.http.max_outbound_frame_size)])
            self.waiting = self.waiting[size:]
        self.writer.write(self.http.data_to_send())

    def write(self, data):
        self.waiting += data
        self.flush()

    def end(self):
        try:
            self.http.end_stream(self.stream)
        except h2.exceptions.ProtocolError:
            pass
        self.flush()
        self.writer.close()

    def drop(self):
        self.http.reset_stream(self.stream, 8)
        self.flush()


class Quic(QuicConnectionProtocol):
    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
        if isinstance(event, ConnectionTerminated) or (
            isinstance(event, StreamReset) and event.stream_id == self.stream
        ):
            self.client.on_end()
        for http_event in self.http.handle_event(event) if hasattr(self, "http") else []:
            if isinstance(http_event, HeadersReceived):
                fields = [[name.decode(), value.decode("latin1")] for name, value in http_event.headers]
                self.client.on_head(int(dict(fields)[":status"]), fields)
            elif isinstance(http_event, DataReceived):
                self.client.on_data(http_event.data)
            if getattr(http_event, "stream_ended", False):
                self.client.on_end()


class Http3:
    async def open(self, client, wanted):
        configuration = QuicConfiguration(
            is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE, server_name="localhost"
        )
        self.context = connect("127.0.0.1", wanted["port"], configuration=configuration, create_protocol=Quic)
        self.quic = await self.context.__aenter__()
        self.quic.client = client
        self.quic.stream = self.quic._quic.get_next_available_stream_id()
        headers = [(name.encode(), value.encode("latin1")) for name, value in extended_connect(wanted, client)]
        self.quic.http.send_headers(self.quic.stream, headers)
        self.quic.transmit()

    def write(self, data):
        self.quic.http.send_data(self.quic.stream, data, end_stream=False)
        self.quic.transmit()

    def end(self):
        try:
            self.quic.http.send_data(self.quic.stream, b"", end_stream=True)
        except (FrameUnexpected, AssertionError, RuntimeError):  # It has been ended, or reset.
            return
        self.quic.transmit()
        asyncio.ensure_future(self.leave())

    async def leave(self):
        try:
            await self.quic.ping()
        except ConnectionError:  # The server has ended it.
            return
        self.quic.close()

    def drop(self):
        self.quic._quic.reset_stream(self.quic.stream, ErrorCode.H3_REQUEST_CANCELLED)
        self.quic._quic.stop_stream(self.quic.stream, ErrorCode.H3_REQUEST_CANCELLED)
        self.quic.transmit()


class Client:
    def __init__(self, number, wanted):
        self.number = number
        self.protocol = Protocol(CLIENT, state=OPEN, max_size=None)
        self.headers = [["sec-websocket-version", "13"], *wanted.get("headers", [])]
        self.deflate = wanted.get("deflate", False)
        if self.deflate:
            self.headers.append(["sec-websocket-extensions", "permessage-deflate; client_max_window_bits"])
        self.transport = {"http/1.1": Http1, "h2": Http2, "h3": Http3}[wanted["protocol"]]()
        self.pieces = []
        self.input = b""
        self.is_over = False

    def on_head(self, status, headers):
        extensions = [value for name, value in headers if name == "sec-websocket-extensions"]
        if extensions:
            bits = {"server_max_window_bits": 15, "client_max_window_bits": 15}
            for parameter in extensions[0].split("; ")[1:]:
                name, _, value = parameter.partition("=")
                bits[name] = int(value) if value else True
            self.protocol.extensions = [
                Deflate(
                    "server_no_context_takeover" in bits,
                    "client_no_context_takeover" in bits,
                    bits["server_max_window_bits"],
                    bits["client_max_window_bits"],
                )
            ]
        self.is_granted = status in (101, 200)
        say(id=self.number, status=status, headers=headers)

    def on_data(self, data):
        if not data or not self.is_granted:
            return
        # One frame at a time, so that the extension's state belongs to the message that is
        # reported next.
        self.input += data
        while size := frame_size(self.input):
            frame, self.input = self.input[:size], self.input[size:]
            self.protocol.receive_data(frame)
            self.answer()

    def answer(self):
        for frame in self.protocol.events_received():
            if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                self.pieces.append(frame)
                if frame.fin:
                    content = b"".join(piece.data for piece in self.pieces)
                    say(
                        id=self.number,
                        message=base64.b64encode(content).decode(),
                        binary=self.pieces[0].opcode == Opcode.BINARY,
                        frames=len(self.pieces),
                        compressed=any(extension.compressed for extension in self.protocol.extensions),
                    )
                    self.pieces = []
            elif frame.opcode in (Opcode.PING, Opcode.PONG):
                say(id=self.number, **{frame.opcode.name.lower(): frame.data.decode("latin1")})
        self.flush()

    def flush(self):
        for data in self.protocol.data_to_send():
            if data:
                self.transport.write(data)
            else:
                self.transport.end()

    def on_end(self):
        if not self.is_over:
            self.is_over = True
            self.protocol.receive_eof()
            say(id=self.number, closed=self.protocol.close_code, reason=self.protocol.close_reason)
            self.transport.end()

    async def command(self, wanted):
        if "open" in wanted:
            await self.transport.open(self, wanted["open"])
        elif "text" in wanted:
            self.protocol.send_text(wanted["text"].encode())
        elif "binary" in wanted:
            self.protocol.send_binary(base64.b64decode(wanted["binary"]))
        elif "fragments" in wanted:
            first, *rest = [text.encode() for text in wanted["fragments"]]
            self.protocol.send_text(first, fin=False)
            for index, text in enumerate(rest):
                self.protocol.send_continuation(text, fin=index + 1 == len(rest))
        elif "ping" in wanted:
            self.protocol.send_ping(wanted["ping"].encode())
        elif "close" in wanted:
            self.protocol.send_close(*wanted["close"])
        elif "raw" in wanted:
            self.transport.write(base64.b64decode(wanted["raw"]))
        elif "drop" in wanted:
            self.transport.drop()
        self.flush()


async def run(client, wanted):
    try:
        await client.command(wanted)
    except Exception as error:  # The test decides what an error means.
        say(id=client.number, error=f"{type(error).__name__}: {error}")


async def main():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    clients = {}
    while line := await reader.readline():
        wanted = json.loads(line)
        number = wanted["id"]
        if "open" in wanted:
            clients[number] = Client(number, wanted["open"])
            asyncio.ensure_future(run(clients[number], wanted))
        else:
            await run(clients[number], wanted)


asyncio.run(main())
