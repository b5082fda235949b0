"""Malformed fields over HTTP/2 (RFC 9113 section 8.2.1): the message is malformed, its connection
continues.
"""

from __future__ import annotations

import hpack
import pytest

from harness.clients.h2_frames import H2Client, StreamResetError
from harness.gateway import SITE, seen, upstream
from harness.h2_origin import h2_origin

PROTOCOL_ERROR = 1

WRONG = {
    "capital": (b"X-Capital", b"a"),
    "blank in a name": (b"a b", b"a"),
    "no name": (b"", b"value"),
    "unknown pseudo": (b":unknown", b"a"),
    "NUL": (b"x-value", b"a\x00b"),
    "line break": (b"x-value", b"a\r\nx-other: b"),
    "DEL": (b"x-value", b"\x7f"),
}
OF_REQUESTS = WRONG | {
    "Latin-1 in the path": (b":path", b"/caf\xe9"),
    "blank in the method": (b":method", b"G T"),
    "status": (b":status", b"2"),
}
OF_RESPONSES = WRONG | {"status": (b":status", b"20")}


def request(field: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    name, value = field
    pseudo = {b":method": b"GET", b":scheme": b"https", b":authority": b"a.example", b":path": b"/"}
    if name.startswith(b":"):
        return [*(pseudo | {name: value}).items()]
    return [*pseudo.items(), field]


@pytest.mark.parametrize("field", OF_REQUESTS.values(), ids=OF_REQUESTS.keys())
def test_request_with_a_malformed_field_fails_alone(start, gateway, ca, field):
    with upstream() as up:
        gateway.write(SITE + f'[[sites.routes]]\nproxy = "{up.address}"\n')
        server = start(gateway.command())
        with H2Client(server.origin, ca) as client:
            under_way = client.start("/upload", method="POST", end=False)
            # The second time it is an index into the table, the third time a literal.
            never_indexed = hpack.NeverIndexedHeaderTuple
            for fields in (
                request(field),
                request(field),
                [never_indexed(*each) for each in request(field)],
            ):
                with pytest.raises(StreamResetError) as reset:
                    client.finish(client.send_fields(fields))
                assert reset.value.code == PROTOCOL_ERROR
            # The tables of both ends still match: first with new fields, then with indices.
            after = [("x-value", "right"), ("x-after", "it")]
            for _ in range(2):
                asked = seen(client.fetch("/after", headers=after))
                assert [asked["headers"][name] for name, _ in after] == ["right", "it"]
            client.http.send_data(under_way, b"content", end_stream=True)
            client.flush()
            assert seen(client.finish(under_way))["content"] == len(b"content")


@pytest.mark.parametrize("field", OF_RESPONSES.values(), ids=OF_RESPONSES.keys())
def test_response_with_a_malformed_field_fails_alone(start, gateway, ca, field):
    waiting = []

    def answer(connection, stream: int, fields) -> None:
        path = dict(fields)[":path"]
        if path == "/waiting":
            return waiting.append(stream)
        head = {b":status": b"200"}
        if path == "/wrong":
            head |= dict([field])
        connection.send_headers(
            stream, [*head.items(), (b"x-path", path.encode())], end_stream=True
        )
        if path == "/last":
            connection.send_headers(
                waiting.pop(), [(":status", "200"), ("x-path", "/waiting")], end_stream=True
            )

    # The upstream accepts one connection only.
    with h2_origin(answer) as address:
        gateway.write(
            SITE + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], protocol = "http2" }}\n'
        )
        server = start(gateway.command())
        with H2Client(server.origin, ca) as client:
            first = client.start("/waiting")
            for _ in range(2):
                assert client.fetch("/wrong").status == 502
                right = client.fetch("/right")
                assert (right.status, right.header("x-path")) == (200, "/right")
            assert client.fetch("/last").status == 200
            assert client.finish(first).header("x-path") == "/waiting"
