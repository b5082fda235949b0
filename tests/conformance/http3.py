"""RFC 9114: streams, frames and messages."""

from __future__ import annotations

from collections.abc import Callable

from harness.clients import quic_frames
from harness.clients.quic_frames import varint
from harness.clients.quic_packets import Close
from harness.clients.raw_h3 import (
    CONTROL_STREAM,
    Field,
    H3Error,
    H3Frame,
    Setting,
    StreamType,
    data,
    frame,
    headers,
    settings,
)

from .case import Suite, Target, case

E = H3Error
SECOND_CONTROL = 14
"""The first unidirectional stream that `RawH3.open` leaves unused."""


def on_request(*parts: bytes, fin: bool = True) -> Callable[[Target], Close | int | None]:
    """A case of one request stream."""

    def run(target: Target) -> Close | int | None:
        with target.http() as h3:
            return h3.error(h3.raw_request(*parts, fin=fin))

    return run


def on_control(*parts: bytes, first: bool = False) -> Callable[[Target], Close | None]:
    """A case of bytes on the control stream, by default after the SETTINGS frame."""

    def run(target: Target) -> Close | None:
        with target.http(open_streams=not first) as h3:
            begin = varint(StreamType.CONTROL) if first else b""
            h3.write(CONTROL_STREAM, begin + b"".join(parts))
            return h3.settle()

    return run


def request_case(
    words: str,
    section: str,
    fields: Callable[[list[Field]], list[Field]],
    *,
    suite: Suite = Suite.H3SPEC,
):
    """A malformed request: the fields of a valid one, modified."""

    @case(E.H3_MESSAGE_ERROR, words=words, section=section, suite=suite)
    def _(target: Target) -> Close | int | None:
        with target.http() as h3:
            return h3.error(h3.request(fields(h3.get("/small.txt"))))


def is_pseudo(each: Field) -> bool:
    return str(each[0]).startswith(":")


def without(fields: list[Field], *names: str) -> list[Field]:
    return [each for each in fields if each[0] not in names]


def replaced(fields: list[Field], name: str, value: str) -> list[Field]:
    return [(key, value if key == name else old) for key, old in fields]


# Messages.

case(E.H3_FRAME_UNEXPECTED, words="DATA is received before HEADERS", section="HTTP/3 4.1")(
    on_request(data(b""), headers([]))
)
request_case(
    "a pseudo-header is duplicated", "HTTP/3 4.1.1", lambda fields: [*fields, (":method", "GET")]
)
request_case(
    "mandatory pseudo-header fields are absent",
    "HTTP/3 4.1.3",
    lambda fields: without(fields, ":authority"),
)
request_case(
    "prohibited pseudo-header fields are present",
    "HTTP/3 4.1.3",
    lambda fields: [*fields, (":foo", "bar")],
)
request_case(
    "pseudo-header fields exist after fields",
    "HTTP/3 4.1.3",
    lambda fields: [*without(fields, ":path"), ("foo", "bar"), (":path", "/")],
)
request_case(
    ":path is absent", "HTTP/3 4.3.1", lambda fields: without(fields, ":path"), suite=Suite.OURS
)
request_case(
    ":path is empty", "HTTP/3 4.3.1", lambda fields: replaced(fields, ":path", ""), suite=Suite.OURS
)
request_case(
    ":scheme is absent", "HTTP/3 4.3.1", lambda fields: without(fields, ":scheme"), suite=Suite.OURS
)
request_case(
    ":method is absent", "HTTP/3 4.3.1", lambda fields: without(fields, ":method"), suite=Suite.OURS
)
request_case(
    ":status is received",
    "HTTP/3 4.3",
    lambda fields: [*fields, (":status", "200")],
    suite=Suite.OURS,
)
request_case(
    "CONNECT has a :path",
    "HTTP/3 4.4",
    lambda fields: replaced(fields, ":method", "CONNECT"),
    suite=Suite.OURS,
)
request_case(
    "a field name has upper case",
    "HTTP/3 4.2",
    lambda fields: [*fields, ("Foo", "bar")],
    suite=Suite.OURS,
)
request_case(
    "a field name is empty", "HTTP/3 4.2", lambda fields: [*fields, ("", "bar")], suite=Suite.OURS
)
request_case(
    "a field value has a line end",
    "HTTP/3 4.2",
    lambda fields: [*fields, ("foo", "a\r\nb: c")],
    suite=Suite.OURS,
)
request_case(
    "a field value has NUL",
    "HTTP/3 4.2",
    lambda fields: [*fields, ("foo", "a\x00b")],
    suite=Suite.OURS,
)
request_case(
    "host contradicts :authority",
    "HTTP/3 4.3.1",
    lambda fields: [*fields, ("host", "other.example")],
    suite=Suite.OURS,
)


for name, value in [
    ("connection", "close"),
    ("keep-alive", "timeout=5"),
    ("proxy-connection", "keep-alive"),
    ("transfer-encoding", "chunked"),
    ("upgrade", "websocket"),
    ("te", "gzip"),
]:
    request_case(
        f"a request with {name}",
        "HTTP/3 4.2",
        lambda fields, name=name, value=value: [*fields, (name, value)],
        suite=Suite.NEWER,
    )
request_case(
    "content that does not match content-length",
    "HTTP/3 4.1.2",
    lambda fields: [*fields, ("content-length", "5")],
    suite=Suite.NEWER,
)


@case(words="TE with trailers is accepted", section="HTTP/3 4.2", suite=Suite.NEWER)
def te_trailers(target: Target) -> Close | int | None:
    with target.http() as h3:
        stream = h3.request(h3.get("/small.txt", ("te", "trailers")))
        error = h3.error(stream)
        assert error is not None or h3.answer(stream).status == 200
        return error


@case(
    E.H3_MESSAGE_ERROR,
    words="a request whose trailers carry connection",
    section="HTTP/3 4.2",
    suite=Suite.NEWER,
)
def connection_trailer(target: Target) -> Close | int | None:
    with target.http() as h3:
        fields = h3.get("/small.txt", method="POST")
        return h3.error(
            h3.request(fields, data(b"hello"), headers([("connection", "close")]), fin=False)
        )


@case(
    E.H3_MESSAGE_ERROR,
    words="more content than content-length",
    section="HTTP/3 4.1.2",
    suite=Suite.OURS,
)
def too_much_content(target: Target) -> Close | int | None:
    with target.http() as h3:
        fields = replaced(h3.get("/", ("content-length", "3")), ":method", "POST")
        return h3.error(h3.request(fields, data(b"1234"), fin=False))


@case(
    E.H3_MESSAGE_ERROR, words="a pseudo-header in trailers", section="HTTP/3 4.3", suite=Suite.OURS
)
def pseudo_trailer(target: Target) -> Close | int | None:
    with target.http() as h3:
        fields = h3.get("/small.txt", method="POST")
        return h3.error(h3.request(fields, data(b"1234"), headers([(":path", "/")]), fin=False))


@case(E.H3_FRAME_UNEXPECTED, words="DATA after trailers", section="HTTP/3 4.1", suite=Suite.OURS)
def data_after_trailers(target: Target) -> Close | int | None:
    with target.http() as h3:
        fields = h3.get("/small.txt", method="POST")
        return h3.error(
            h3.request(fields, data(b"1"), headers([("foo", "bar")]), data(b"2"), fin=False)
        )


case(
    E.H3_REQUEST_INCOMPLETE,
    words="a request stream ends without a request",
    section="HTTP/3 4.1",
    suite=Suite.OURS,
)(on_request(b""))

# Streams.

case(
    E.H3_MISSING_SETTINGS, words="the first control frame is not SETTINGS", section="HTTP/3 6.2.1"
)(on_control(frame(H3Frame.MAX_PUSH_ID, varint(1)), settings(), first=True))


def second_stream(kind: int) -> Callable[[Target], Close | None]:
    def run(target: Target) -> Close | None:
        with target.http() as h3:
            h3.write(SECOND_CONTROL, varint(kind))
            return h3.settle()

    return run


case(
    E.H3_STREAM_CREATION_ERROR,
    words="a second control stream is opened",
    section="HTTP/3 6.2.1",
    suite=Suite.NEWER,
)(second_stream(StreamType.CONTROL))
case(
    E.H3_STREAM_CREATION_ERROR,
    words="a client opens a push stream",
    section="HTTP/3 6.2.2",
    suite=Suite.NEWER,
)(second_stream(StreamType.PUSH))


@case(
    E.H3_CLOSED_CRITICAL_STREAM,
    words="a control stream is reset",
    section="HTTP/3 6.2.1",
    suite=Suite.OURS,
)
def reset_control(target: Target) -> Close | None:
    with target.http() as h3:
        # A reset before the server has read the stream's type would hit a stream of unknown type.
        h3.settle()
        size = h3.sent_on(CONTROL_STREAM)
        h3.send(quic_frames.reset_stream(CONTROL_STREAM, final_size=size))
        return h3.settle()


# Frames.

case(
    E.H3_FRAME_UNEXPECTED,
    words="a DATA frame is received on a control stream",
    section="HTTP/3 7.2.1",
)(on_control(data(b"")))
case(
    E.H3_FRAME_UNEXPECTED,
    words="a HEADERS frame is received on a control stream",
    section="HTTP/3 7.2.2",
)(on_control(frame(H3Frame.HEADERS)))
case(E.H3_FRAME_UNEXPECTED, words="a second SETTINGS frame is received", section="HTTP/3 7.2.4")(
    on_control(settings())
)
case(E.H3_SETTINGS_ERROR, words="duplicate setting identifiers exist", section="HTTP/3 7.2.4")(
    on_control(
        settings([(Setting.QPACK_BLOCKED_STREAMS, 100), (Setting.QPACK_BLOCKED_STREAMS, 100)]),
        first=True,
    )
)
case(E.H3_SETTINGS_ERROR, words="HTTP/2 settings are included", section="HTTP/3 7.2.4.1")(
    on_control(settings([(Setting.QPACK_BLOCKED_STREAMS, 100), (0x02, 200)]), first=True)
)
case(
    E.H3_SETTINGS_ERROR,
    words="an HTTP/2 setting stands behind a reserved identifier",
    section="HTTP/3 7.2.4.1",
    suite=Suite.NEWER,
)(on_control(settings([(0x21, 0), (0x02, 0)]), first=True))
case(
    E.H3_SETTINGS_ERROR,
    words="a repeated setting identifier, whatever its value",
    section="HTTP/3 7.2.4.1",
    suite=Suite.NEWER,
)(on_control(settings([(0x40, 0), (0x40, 0)]), first=True))
case(
    E.H3_EXCESSIVE_LOAD,
    E.H3_FRAME_ERROR,
    words="a frame longer than what is buffered of one is announced",
    section="HTTP/3 7.1",
    suite=Suite.NEWER,
)(on_control(varint(H3Frame.GOAWAY) + varint(1 << 30)))
case(
    E.H3_FRAME_UNEXPECTED,
    words="CANCEL_PUSH is received in a request stream",
    section="HTTP/3 7.2.5",
)(on_request(frame(H3Frame.CANCEL_PUSH, varint(0))))
for each in (H3Frame.SETTINGS, H3Frame.GOAWAY, H3Frame.MAX_PUSH_ID, H3Frame.PUSH_PROMISE):
    payload = b"" if each == H3Frame.SETTINGS else varint(0)
    case(
        E.H3_FRAME_UNEXPECTED,
        words=f"{each.name} is received in a request stream",
        section="HTTP/3 7.2",
        suite=Suite.OURS,
    )(on_request(frame(each, payload)))
case(
    E.H3_FRAME_UNEXPECTED,
    words="PUSH_PROMISE is received on a control stream",
    section="HTTP/3 7.2.5",
    suite=Suite.OURS,
)(on_control(frame(H3Frame.PUSH_PROMISE, varint(0))))
for kind in (0x02, 0x06, 0x08, 0x09):
    case(
        E.H3_FRAME_UNEXPECTED,
        words=f"a frame of HTTP/2's type {kind:#04x} on a control stream",
        section="HTTP/3 7.2.8",
        suite=Suite.OURS,
    )(on_control(frame(kind)))
case(
    E.H3_FRAME_UNEXPECTED,
    words="a frame of HTTP/2's type 0x06 in a request",
    section="HTTP/3 7.2.8",
    suite=Suite.OURS,
)(on_request(frame(0x06)))
case(E.H3_ID_ERROR, words="MAX_PUSH_ID is reduced", section="HTTP/3 7.2.7", suite=Suite.OURS)(
    on_control(frame(H3Frame.MAX_PUSH_ID, varint(5)), frame(H3Frame.MAX_PUSH_ID, varint(4)))
)
case(
    E.H3_ID_ERROR,
    words="CANCEL_PUSH of a push that was not promised",
    section="HTTP/3 7.2.3",
    suite=Suite.OURS,
)(on_control(frame(H3Frame.CANCEL_PUSH, varint(3))))
case(E.H3_ID_ERROR, words="GOAWAY raises its identifier", section="HTTP/3 5.2", suite=Suite.OURS)(
    on_control(frame(H3Frame.GOAWAY, varint(1)), frame(H3Frame.GOAWAY, varint(2)))
)
case(
    E.H3_FRAME_ERROR, words="a frame longer than its fields", section="HTTP/3 7.1", suite=Suite.OURS
)(on_control(frame(H3Frame.MAX_PUSH_ID, varint(1) + b"\x00")))
case(
    E.H3_FRAME_ERROR,
    words="a frame shorter than its fields",
    section="HTTP/3 7.1",
    suite=Suite.OURS,
)(on_control(frame(H3Frame.GOAWAY, b"")))
case(
    E.H3_FRAME_ERROR,
    words="a SETTINGS frame stops mid-parameter",
    section="HTTP/3 7.1",
    suite=Suite.NEWER,
)(on_control(frame(H3Frame.SETTINGS, varint(Setting.MAX_FIELD_SECTION_SIZE)), first=True))
case(
    E.H3_FRAME_ERROR,
    words="a request stream ends in mid-frame",
    section="HTTP/3 7.1",
    suite=Suite.OURS,
)(on_request(varint(H3Frame.HEADERS) + varint(100) + b"\x00\x00"))


@case(E.H3_CLOSED_CRITICAL_STREAM, words="a control stream is closed", section="QPACK 4.2")
def closed_control(target: Target) -> Close | None:
    with target.http() as h3:
        h3.write(CONTROL_STREAM, b"", fin=True)
        return h3.settle()
