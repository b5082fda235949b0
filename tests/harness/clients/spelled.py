"""Requests spelled by the test, over each protocol: targets, hosts and methods that no library
would send.
"""

from __future__ import annotations

from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path

from .h2_frames import ConnectionEndedError, Exchange, H2Client
from .h2_frames import StreamResetError as H2StreamResetError
from .raw_h1 import RawH1
from .raw_h3 import RawH3

VERSIONS = ("1.1", "2", "3")


@dataclass
class Answer:
    """A response. `status` is None if the server reset the stream, or closed the connection."""

    status: int | None
    headers: dict[str, str]
    body: bytes


@dataclass
class Speller:
    """Sends requests to a test server over one protocol; each request has a new connection."""

    version: str
    origin: str
    ca: Path

    def ask(
        self,
        path: str = "/",
        *,
        method: str = "GET",
        host: str | None = None,
        headers=(),
        protocol: str | None = None,
    ) -> Answer:
        """Sends a request. `protocol`: the protocol to switch to."""
        host = host or self.origin.partition("://")[2]
        ask = {"1.1": self._http1, "2": self._http2, "3": self._http3}[self.version]
        return ask(path, method, host, list(headers), protocol)

    def _http1(self, path, method, host, headers, protocol) -> Answer:
        if protocol:
            headers += [("connection", "upgrade"), ("upgrade", protocol)]
        lines = "".join(f"{name}: {value}\r\n" for name, value in [("host", host), *headers])
        with RawH1(self.origin, self.ca) as client:
            client.socket.sendall(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode())
            answer = HTTPResponse(client.socket, method=method)
            answer.begin()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, fields, answer.read())

    def _http2(self, path, method, host, headers, protocol) -> Answer:
        with H2Client(self.origin, self.ca) as client:
            while protocol and not client.http.remote_settings.enable_connect_protocol:
                assert client.read(), "the server offers no extended CONNECT"
            stream = client.http.get_next_available_stream_id()
            client.exchanges[stream] = exchange = Exchange()
            client.http.send_headers(
                stream, fields_of(path, method, host, headers, protocol), end_stream=not protocol
            )
            client.flush()
            try:
                # An open tunnel does not end.
                while protocol and exchange.headers is None and exchange.reset is None:
                    assert client.read(), "the server closed the connection"
                if protocol and exchange.headers and dict(exchange.headers)[":status"] == "200":
                    return Answer(200, dict(exchange.headers), bytes(exchange.body))
                answer = client.finish(stream)
            except (H2StreamResetError, ConnectionEndedError):
                return Answer(None, {}, b"")
            return Answer(answer.status, dict(answer.headers), answer.body)

    def _http3(self, path, method, host, headers, protocol) -> Answer:
        with RawH3(self.origin, self.ca) as client:
            client.open()
            stream = client.request(
                fields_of(path, method, host, headers, protocol), fin=not protocol
            )
            if client.error(stream) is not None and not client.streams[stream].data:
                return Answer(None, {}, b"")
            answer = client.answer(stream)
            return Answer(answer.status, dict(answer.heads[-1]), answer.body)


def fields_of(path, method, host, headers, protocol) -> list[tuple[str, str]]:
    method = "CONNECT" if protocol else method
    fields = [(":method", method), (":scheme", "https"), (":authority", host), (":path", path)]
    if protocol:
        fields.append((":protocol", protocol))
    return [*fields, *((name.lower(), value) for name, value in headers)]
