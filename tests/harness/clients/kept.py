"""Many requests on kept connections, over each protocol, each spelled by the test."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from .h2_frames import ConnectionEndedError, Exchange, H2Client
from .h2_frames import StreamResetError as H2StreamResetError
from .raw_h1 import RawH1
from .raw_h3 import RawH3
from .raw_quic import ClosedError
from .spelled import Answer

SIZES = ((50, 5), (8, 1), (1, 1))
"""Number of open requests on a connection at once, fewer than the server's initial limit, and
number of batches: the server closes a connection on which too many requests break a rule.
"""


@dataclass(frozen=True)
class Spelled:
    """A request. Its bytes are sent as given."""

    path: bytes = b"/"
    """Includes the query, if there is one."""
    method: str = "GET"
    host: bytes = b"localhost"
    host_field: bytes | None = None
    """`host` beside `:authority`; over HTTP/1.1 the target is then absolute."""
    absolute: bool = False
    """Over HTTP/1.1 the target contains the host, like `:authority` in the others."""
    scheme: str = "https"
    fields: tuple[tuple[str, str], ...] = ()
    protocol: str | None = None
    """The protocol to switch to."""

    def head(self, more: Iterable[tuple[str, str]] = ()) -> bytes:
        """Encodes the request for HTTP/1.1."""
        is_absolute = self.absolute or self.host_field is not None
        target = self.scheme.encode() + b"://" + self.host + self.path if is_absolute else self.path
        fields = [*self.fields, *more]
        if self.protocol:
            fields += [("connection", "upgrade"), ("upgrade", self.protocol)]
        host = self.host if self.host_field is None else self.host_field
        lines = [b"host: " + host, *(f"{name}: {value}".encode() for name, value in fields)]
        return b"\r\n".join([self.method.encode() + b" " + target + b" HTTP/1.1", *lines, b"", b""])

    def section(self, more: Iterable[tuple[str, str]] = ()) -> list[tuple[bytes, bytes]]:
        """Returns the fields for HTTP/2 and HTTP/3."""
        fields = [
            (b":method", b"CONNECT" if self.protocol else self.method.encode()),
            (b":scheme", self.scheme.encode()),
            (b":authority", self.host),
            (b":path", self.path),
        ]
        if self.protocol:
            fields.append((b":protocol", self.protocol.encode()))
        if self.host_field is not None:
            fields.append((b"host", self.host_field))
        return fields + [
            (name.lower().encode(), value.encode()) for name, value in [*self.fields, *more]
        ]


Numbered = Sequence[tuple[str, Spelled]]
"""Requests, each with the value of its field `x-number`."""


def ask_all(version: str, origin: str, ca: Path, requests: Numbered) -> dict[str, Answer]:
    """Sends the requests over one protocol; returns the responses by number."""
    if version == "1.1":
        return _ask_http1(origin, ca, requests)
    return _ask_multiplexed({"2": _ask_on_http2, "3": _ask_on_http3}[version], origin, ca, requests)


NOTHING = Answer(None, {}, b"")


def _number(number: str) -> list[tuple[str, str]]:
    return [("x-number", number)]


def _ask_http1(origin: str, ca: Path, requests: Numbered) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    client: RawH1 | None = None
    with ExitStack() as open_connections:
        for number, request in requests:
            is_kept = client is not None
            while True:
                client = client or open_connections.enter_context(RawH1(origin, ca))
                answer, stays_open = _exchange(client, request, number)
                if not stays_open:
                    client.socket.close()
                    client = None
                if answer is not NOTHING or not is_kept:
                    break
                # The server may have closed a connection in the meantime.
                is_kept = False
            answers[number] = answer
    return answers


def _exchange(client: RawH1, request: Spelled, number: str) -> tuple[Answer, bool]:
    """Reads a response; returns it with whether the connection can be reused."""
    try:
        client.socket.sendall(request.head(_number(number)))
        response = HTTPResponse(client.socket, method=request.method)
        response.begin()
        fields = {name.lower(): value for name, value in response.getheaders()}
        body = b"" if response.status == 101 else response.read()
    except (ConnectionError, ssl.SSLEOFError, HTTPException):
        return NOTHING, False
    return Answer(response.status, fields, body), response.status != 101 and not response.will_close


def _ask_multiplexed(ask_on, origin: str, ca: Path, requests: Numbered) -> dict[str, Answer]:
    """Retries requests that shared a connection with one that ended it: in small batches, then
    alone.
    """
    answers: dict[str, Answer] = {}
    for size, batches in SIZES:
        left = [one for one in requests if one[0] not in answers]
        # An open tunnel does not end, so a request for one is sent alone.
        alone = [[[one]] for one in left if one[1].protocol]
        others = _pieces([one for one in left if not one[1].protocol], size)
        for of_connection in [*alone, *_pieces(others, batches)]:
            ask_on(origin, ca, of_connection, answers)
    return {number: answers.get(number, NOTHING) for number, _ in requests}


def _pieces(items: Sequence, size: int) -> list[Sequence]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _ask_on_http2(
    origin: str, ca: Path, batches: Sequence[Numbered], answers: dict[str, Answer]
) -> None:
    with H2Client(origin, ca) as client:
        try:
            for batch in batches:
                _ask_at_once_http2(client, batch, answers)
        except (ConnectionError, ssl.SSLEOFError):
            return


def _ask_at_once_http2(client: H2Client, batch: Numbered, answers: dict[str, Answer]) -> None:
    if batch[0][1].protocol:
        while not client.http.remote_settings.enable_connect_protocol:
            assert client.read(), "the server offers no extended CONNECT"
    streams: list[tuple[int, str, Spelled]] = []
    for number, request in batch:
        stream = client.http.get_next_available_stream_id()
        streams.append((stream, number, request))
        client.exchanges[stream] = Exchange()
        client.http.send_headers(
            stream, request.section(_number(number)), end_stream=not request.protocol
        )
    client.flush()
    for stream, number, request in streams:
        exchange = client.exchanges[stream]
        while request.protocol and exchange.headers is None and exchange.reset is None:
            if not client.read():
                raise ConnectionEndedError("the server closed the connection")
        if request.protocol and exchange.headers is not None:
            fields = dict(exchange.headers)
            answers[number] = Answer(int(fields[":status"]), fields, bytes(exchange.body))
            continue
        try:
            response = client.finish(stream)
        except H2StreamResetError:
            answers[number] = NOTHING
        else:
            answers[number] = Answer(response.status, dict(response.headers), response.body)


def _ask_on_http3(
    origin: str, _ca: Path, batches: Sequence[Numbered], answers: dict[str, Answer]
) -> None:
    # Verifying the certificate takes longer than the handshake, and is not tested here.
    with RawH3(origin) as client:
        client.open()
        try:
            for batch in batches:
                _ask_at_once_http3(client, batch, answers)
        except ClosedError:
            return


def _ask_at_once_http3(client: RawH3, batch: Numbered, answers: dict[str, Answer]) -> None:
    streams = [
        (client.request(request.section(_number(number)), fin=not request.protocol), number)
        for number, request in batch
    ]
    for stream, number in streams:
        reset = client.error(stream)
        if client.closed is not None:
            raise ClosedError(client.closed, "an answer")
        if reset is not None and not client.streams[stream].data:
            answers[number] = NOTHING
            continue
        answer = client.answer(stream)
        answers[number] = Answer(answer.status, dict(answer.heads[-1]), answer.body)
