"""An HTTP/3 server on aioquic, for the tests of our client.

`server.py --cert FILE --key FILE [--host IP] [--retry]` prints `listening on https://IP:PORT (h3)`
and runs until it is killed. `/bytes/N` returns N bytes, `/new-keys/N` the same after a key update,
`/request` the request; `/go-away` gets no response, only a GOAWAY that says that no request was
processed. Session tickets are stored, so that early data is accepted.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import H3_ALPN, FrameType, H3Connection, encode_frame
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.tls import CipherSuite


def pattern(size: int) -> bytes:
    """Returns the same bytes for the same size on every run."""
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


class Answers(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = None
        self.asked: dict[int, tuple[dict, bytearray]] = {}
        self.early: dict[int, bool] = {}

    def quic_event_received(self, event) -> None:
        # The first 0-RTT stream may arrive before the handshake announces the protocol.
        self.http = self.http or H3Connection(self._quic)
        for each in self.http.handle_event(event):
            if isinstance(each, HeadersReceived) and each.stream_id not in self.asked:
                head = {name.decode(): value.decode("latin-1") for name, value in each.headers}
                self.asked[each.stream_id] = (head, bytearray())
                # The request arrives before the handshake is complete.
                self.early[each.stream_id] = not self._quic._handshake_complete
            elif isinstance(each, DataReceived):
                self.asked[each.stream_id][1].extend(each.data)
            else:
                continue
            # //= RFC 9114 section 4.1
            # //# After sending a request, a client MUST close the stream for sending.
            # //= RFC 9114 section 4.1
            # //# Unless using the CONNECT method (see Section 4.4), clients MUST NOT make stream
            # //# closure
            # //# dependent on receiving a response to their request.
            if each.stream_ended:
                self.answer(each.stream_id)

    def answer(self, stream: int) -> None:
        head, body = self.asked.pop(stream)
        path = head[":path"]
        if path == "/go-away":
            frame = encode_frame(FrameType.GOAWAY, encode_uint_var(0))
            self._quic.send_stream_data(self.http._local_control_stream_id, frame)
            self.transmit()
            return
        if path.startswith("/bytes/"):
            content = pattern(int(path.removeprefix("/bytes/")))
        elif path.startswith("/new-keys/"):
            self._quic.request_key_update()
            content = pattern(int(path.removeprefix("/new-keys/")))
        else:
            seen = {
                "method": head[":method"],
                "path": path,
                "headers": head,
                "size": len(body),
                "sha256": hashlib.sha256(body).hexdigest(),
                "resumed": self._quic.tls.session_resumed,
                "cipher": self._quic.tls.key_schedule.cipher_suite.name,
                "early": self.early.pop(stream, False),
            }
            content = json.dumps(seen).encode()
        self.http.send_headers(
            stream, [(b":status", b"200"), (b"content-length", str(len(content)).encode())]
        )
        self.http.send_data(stream, content, end_stream=True)
        self.transmit()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--retry", action="store_true")
    parser.add_argument(
        "--cipher", choices=[suite.name for suite in CipherSuite], help="the only one that it takes"
    )
    arguments = parser.parse_args()
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    if arguments.cipher:
        configuration.cipher_suites = [CipherSuite[arguments.cipher]]
    configuration.load_cert_chain(arguments.cert, arguments.key)
    tickets = {}
    server = await serve(
        arguments.host,
        0,
        configuration=configuration,
        create_protocol=Answers,
        session_ticket_fetcher=lambda label: tickets.pop(label, None),
        session_ticket_handler=lambda ticket: tickets.update({ticket.ticket: ticket}),
        retry=arguments.retry,
    )
    port = server._transport.get_extra_info("sockname")[1]
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    print(f"listening on https://{host}:{port} (h3)", file=sys.stderr, flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
