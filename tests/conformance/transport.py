"""RFC 9000: transport parameters, packets and frames."""

from __future__ import annotations

from aioquic.buffer import Buffer

from harness.clients import quic_frames as frames
from harness.clients.quic_frames import VARINT_MAX, FrameType, varint
from harness.clients.quic_packets import Close, Level, Packet, Parameter, Parameters, TransportError

from .case import Suite, Target, case, in_handshake, sends

E = TransportError
OURS_BIDI, OURS_UNI, SERVER_BIDI, SERVER_UNI = 0, 2, 1, 3
"""The first stream of each type, from the client's side (RFC 9000 section 2.1)."""
TOO_MANY_STREAMS = (1 << 60) + 1
DUMMY_CID = b"DUMMY\x00\x00\x00"


def frame_case(
    *errors, words: str, section: str, payload: bytes, suite: Suite = Suite.H3SPEC, known: str = ""
) -> None:
    case(*errors, words=words, section=section, suite=suite, known=known)(sends(payload))


# Flow control and stream limits.

frame_case(
    E.FLOW_CONTROL_ERROR,
    words="a STREAM frame with a large offset is received",
    section="Transport 4.1",
    payload=frames.stream(OURS_BIDI, b"GET /\r\n", offset=100_000_000, fin=True),
)
frame_case(
    E.STREAM_LIMIT_ERROR,
    words="a stream ID exceeding the limit",
    section="Transport 4.6",
    payload=frames.stream(1_000_000_000, b"GET /\r\n", fin=True),
)
frame_case(
    E.STREAM_LIMIT_ERROR,
    words="a unidirectional stream ID exceeding the limit",
    section="Transport 4.6",
    payload=frames.stream(1_000_000_002, b"\x00"),
    suite=Suite.OURS,
)


@case(
    E.FLOW_CONTROL_ERROR,
    words="more is received on all streams than the connection's limit",
    section="Transport 4.1",
    suite=Suite.OURS,
)
def over_connection_window(target: Target) -> Close | None:
    with target.connected() as quic:
        connection = integer(quic.peer_parameters[Parameter.INITIAL_MAX_DATA])
        each = integer(quic.peer_parameters[Parameter.INITIAL_MAX_STREAM_DATA_BIDI_REMOTE])
        # The last byte of each stream's window is enough to exhaust it.
        for number in range(connection // each + 1):
            quic.send(frames.stream(4 * number, b"x", offset=each - 1))
        return quic.settle()


frame_case(
    E.FINAL_SIZE_ERROR,
    words="data beyond the final size of a stream is received",
    section="Transport 4.5",
    payload=frames.stream(OURS_BIDI, b"abc", fin=True) + frames.stream(OURS_BIDI, b"d", offset=3),
    suite=Suite.OURS,
)
frame_case(
    E.FINAL_SIZE_ERROR,
    words="a final size below what was received",
    section="Transport 4.5",
    payload=frames.stream(OURS_BIDI, b"abc", offset=10)
    + frames.stream(OURS_BIDI, b"", offset=5, fin=True),
    suite=Suite.OURS,
    known="quinn-proto compares the final size with a later one, and not with data already received beyond it",
)
frame_case(
    E.FINAL_SIZE_ERROR,
    words="RESET_STREAM changes the final size",
    section="Transport 4.5",
    payload=frames.stream(OURS_BIDI, b"abc", offset=7, fin=True)
    + frames.reset_stream(OURS_BIDI, final_size=11),
    suite=Suite.OURS,
)
frame_case(
    E.FLOW_CONTROL_ERROR,
    words="RESET_STREAM with a final size over the limit",
    section="Transport 4.5",
    payload=frames.reset_stream(OURS_BIDI, final_size=100_000_000),
    suite=Suite.OURS,
)


# Transport parameters.


def integer(value: bytes) -> int:
    return Buffer(data=value).pull_uint_var()


def parameter_case(
    words: str, section: str, change: Parameters, *, suite: Suite = Suite.H3SPEC, known: str = ""
) -> None:
    def edit(parameters: Parameters) -> Parameters:
        return parameters | change

    @case(E.TRANSPORT_PARAMETER_ERROR, words=words, section=section, suite=suite, known=known)
    def _(target: Target) -> Close | None:
        return in_handshake(target.quic(edit_parameters=edit))


@case(
    E.TRANSPORT_PARAMETER_ERROR,
    words="initial_source_connection_id is missing",
    section="Transport 7.3",
)
def no_initial_scid(target: Target) -> Close | None:
    return in_handshake(
        target.quic(
            edit_parameters=lambda parameters: (
                parameters.pop(Parameter.INITIAL_SOURCE_CONNECTION_ID) and None
            )
        )
    )


PREFERRED_ADDRESS = (
    bytes([127, 0, 0, 1])
    + (443).to_bytes(2, "big")
    + bytes(18)
    + bytes([8])
    + bytes(range(8))
    + bytes(range(16))
)

parameter_case(
    "initial_source_connection_id differs from the packets'",
    "Transport 7.3",
    {Parameter.INITIAL_SOURCE_CONNECTION_ID: DUMMY_CID},
    suite=Suite.OURS,
)
parameter_case(
    "original_destination_connection_id is received",
    "Transport 18.2",
    {Parameter.ORIGINAL_DESTINATION_CONNECTION_ID: DUMMY_CID},
)
parameter_case(
    "preferred_address, is received",
    "Transport 18.2",
    {Parameter.PREFERRED_ADDRESS: PREFERRED_ADDRESS},
)
parameter_case(
    "retry_source_connection_id is received",
    "Transport 18.2",
    {Parameter.RETRY_SOURCE_CONNECTION_ID: DUMMY_CID},
)
parameter_case(
    "stateless_reset_token is received",
    "Transport 18.2",
    {Parameter.STATELESS_RESET_TOKEN: bytes(range(16))},
)
parameter_case(
    "max_udp_payload_size < 1200",
    "Transport 7.4 and 18.2",
    {Parameter.MAX_UDP_PAYLOAD_SIZE: varint(1090)},
)
parameter_case(
    "ack_delay_exponen > 20", "Transport 7.4 and 18.2", {Parameter.ACK_DELAY_EXPONENT: varint(30)}
)
parameter_case(
    "max_ack_delay >= 2^14", "Transport 7.4 and 18.2", {Parameter.MAX_ACK_DELAY: varint(1 << 15)}
)
parameter_case(
    "active_connection_id_limit < 2",
    "Transport 18.2",
    {Parameter.ACTIVE_CONNECTION_ID_LIMIT: varint(1)},
    suite=Suite.OURS,
)
parameter_case(
    "initial_max_streams_bidi > 2^60",
    "Transport 4.6 and 18.2",
    {Parameter.INITIAL_MAX_STREAMS_BIDI: varint(TOO_MANY_STREAMS)},
    suite=Suite.OURS,
)
parameter_case(
    "a parameter whose length contradicts its value",
    "Transport 7.4",
    {Parameter.INITIAL_MAX_DATA: varint(1000) + b"\x00"},
    suite=Suite.OURS,
)


@case(
    E.TRANSPORT_PARAMETER_ERROR,
    words="a parameter is received twice",
    section="Transport 7.4",
    suite=Suite.OURS,
)
def parameter_twice(target: Target) -> Close | None:
    quic = target.quic()
    kind, body = quic.tls.handshake_extensions[0]
    again = varint(Parameter.INITIAL_MAX_DATA) + varint(4) + varint(1000, size=4)
    quic.tls.handshake_extensions = [(kind, body + again)]
    return in_handshake(quic)


# Packets.

frame_case(
    E.FRAME_ENCODING_ERROR,
    words="a frame of unknown type is received",
    section="Transport 12.4",
    payload=frames.frame(0x20),
)
case(E.PROTOCOL_VIOLATION, words="no frames", section="Transport 12.4")(sends(b""))
case(E.PROTOCOL_VIOLATION, words="reserved bits in Short are non-zero", section="Transport 17.2")(
    sends(frames.ping(), reserved_bits=1)
)


def edited_handshake(target: Target, edit) -> Close | None:
    """A connection whose first Handshake packet is modified."""

    def change(packet: Packet) -> None:
        if packet.level == Level.HANDSHAKE:
            edit(packet)

    return in_handshake(target.quic(edit_packet=change))


@case(
    E.PROTOCOL_VIOLATION, words="reserved bits in Handshake are non-zero", section="Transport 17.2"
)
def reserved_bits_in_handshake(target: Target) -> Close | None:
    return edited_handshake(target, lambda packet: setattr(packet, "reserved_bits", 2))


@case(
    E.PROTOCOL_VIOLATION,
    words="PATH_CHALLENGE in Handshake is received",
    section="Transport 17.2.4",
)
def path_challenge_in_handshake(target: Target) -> Close | None:
    def edit(packet: Packet) -> None:
        packet.payload = frames.path_challenge(b"01234567") + packet.payload

    return edited_handshake(target, edit)


@case(
    E.PROTOCOL_VIOLATION,
    words="STREAM in Handshake is received",
    section="Transport 12.5",
    suite=Suite.OURS,
)
def stream_in_handshake(target: Target) -> Close | None:
    def edit(packet: Packet) -> None:
        packet.payload = frames.stream(OURS_BIDI, b"GET /\r\n") + packet.payload

    return edited_handshake(target, edit)


@case(
    E.PROTOCOL_VIOLATION,
    words="STREAM in Initial is received",
    section="Transport 12.5",
    suite=Suite.OURS,
)
def stream_in_initial(target: Target) -> Close | None:
    def edit(packet: Packet) -> None:
        if packet.level == Level.INITIAL:
            packet.payload = packet.payload + frames.stream(OURS_BIDI, b"GET /\r\n")

    return in_handshake(target.quic(edit_packet=edit))


@case(
    E.PROTOCOL_VIOLATION,
    words="an ACK of a packet that was never sent",
    section="Transport 13.1",
    suite=Suite.OURS,
)
def ack_of_unsent(target: Target) -> Close | None:
    with target.connected() as quic:
        quic.send(frames.ack([range(0, 1_000_001)]))
        return quic.settle()


@case(
    E.CRYPTO_BUFFER_EXCEEDED,
    words="more CRYPTO data than is buffered",
    section="Transport 7.5",
    suite=Suite.OURS,
)
def crypto_buffer(target: Target) -> Close | None:
    with target.connected() as quic:
        for offset in range(1, 400_000, 1000):
            quic.send(frames.crypto(offset, bytes(1000)))
        return quic.settle()


# Frames.

frame_case(
    E.STREAM_STATE_ERROR,
    words="RESET_STREAM is received for a send-only stream",
    section="Transport 19.4",
    payload=frames.reset_stream(SERVER_UNI),
)
frame_case(
    E.STREAM_STATE_ERROR,
    words="STOP_SENDING is received for a non-existing stream",
    section="Transport 19.5",
    payload=frames.stop_sending(101),
)
frame_case(
    E.STREAM_STATE_ERROR,
    words="STOP_SENDING is received for a receive-only stream",
    section="Transport 19.5",
    payload=frames.stop_sending(OURS_UNI),
    suite=Suite.OURS,
)
frame_case(
    E.FRAME_ENCODING_ERROR,
    E.CRYPTO_BUFFER_EXCEEDED,
    words="CRYPTO with an offset beyond 2^62-1",
    section="Transport 19.6",
    payload=frames.crypto(VARINT_MAX, b"xy"),
    suite=Suite.OURS,
)
frame_case(
    E.PROTOCOL_VIOLATION,
    words="NEW_TOKEN is received",
    section="Transport 19.7",
    payload=frames.new_token(b"DUMMY"),
)
frame_case(
    E.STREAM_STATE_ERROR,
    words="it receives a STREAM frame for a locally-initiated stream that has not yet been created",
    section="Transport 19.8",
    payload=frames.stream(SERVER_BIDI, b""),
)
frame_case(
    E.STREAM_STATE_ERROR,
    words="it receives a STREAM frame for a send-only stream",
    section="Transport 19.8",
    payload=frames.stream(SERVER_UNI, b""),
)
frame_case(
    E.FRAME_ENCODING_ERROR,
    E.FLOW_CONTROL_ERROR,
    words="STREAM with an offset beyond 2^62-1",
    section="Transport 19.8",
    payload=frames.stream(OURS_BIDI, b"xy", offset=VARINT_MAX),
    suite=Suite.OURS,
)
frame_case(
    E.STREAM_STATE_ERROR,
    words="MAX_STREAM_DATA is received for a stream that has not yet been created",
    section="Transport 19.10",
    payload=frames.max_stream_data(101, 1_000_000),
)
frame_case(
    E.STREAM_STATE_ERROR,
    words="MAX_STREAM_DATA is received for a receive-only stream",
    section="Transport 19.10",
    payload=frames.max_stream_data(OURS_UNI, 1_000_000),
)
frame_case(
    E.FRAME_ENCODING_ERROR,
    words="invalid MAX_STREAMS is received",
    section="Transport 19.11",
    payload=frames.max_streams(TOO_MANY_STREAMS, bidi=True),
)
frame_case(
    E.STREAM_STATE_ERROR,
    words="STREAM_DATA_BLOCKED is received for a send-only stream",
    section="Transport 19.13",
    payload=frames.stream_data_blocked(SERVER_UNI, 0),
    suite=Suite.OURS,
)
frame_case(
    E.STREAM_LIMIT_ERROR,
    E.FRAME_ENCODING_ERROR,
    words="or FRAME_ENCODING_ERROR if invalid STREAMS_BLOCKED is received",
    section="Transport 19.14",
    payload=frames.streams_blocked(TOO_MANY_STREAMS, bidi=True),
)
frame_case(
    E.FRAME_ENCODING_ERROR,
    words="NEW_CONNECTION_ID with invalid Retire_Prior_To is received",
    section="Transport 19.15",
    payload=frames.new_connection_id(1, 11, DUMMY_CID),
)
frame_case(
    E.FRAME_ENCODING_ERROR,
    words="NEW_CONNECTION_ID with 0-byte CID is received",
    section="Transport 19.15",
    payload=frames.new_connection_id(1, 0, b""),
)
frame_case(
    E.FRAME_ENCODING_ERROR,
    words="NEW_CONNECTION_ID with a CID of 21 bytes",
    section="Transport 19.15",
    payload=frames.new_connection_id(1, 0, bytes(21)),
    suite=Suite.OURS,
)


@case(
    E.CONNECTION_ID_LIMIT_ERROR,
    words="more connection IDs than active_connection_id_limit",
    section="Transport 5.1.1",
    suite=Suite.OURS,
)
def too_many_cids(target: Target) -> Close | None:
    with target.connected() as quic:
        limit = integer(quic.peer_parameters.get(Parameter.ACTIVE_CONNECTION_ID_LIMIT, varint(2)))
        # One more than the limit, and one that retires the first, which the server may do at once.
        new = (
            frames.new_connection_id(sequence, 0, cid_of(sequence))
            for sequence in range(1, limit + 2)
        )
        quic.send(*new)
        return quic.settle()


def cid_of(sequence: int) -> bytes:
    return sequence.to_bytes(8, "big")


frame_case(
    E.PROTOCOL_VIOLATION,
    words="RETIRE_CONNECTION_ID of a CID that was never issued",
    section="Transport 19.16",
    payload=frames.retire_connection_id(1000),
    suite=Suite.OURS,
)


frame_case(
    E.FRAME_ENCODING_ERROR,
    words="an ACK range below packet number 0",
    section="Transport 19.3.1",
    payload=frames.frame(FrameType.ACK, 1, 0, 0, 5),
    suite=Suite.OURS,
)
frame_case(
    E.FRAME_ENCODING_ERROR,
    words="a frame that is cut short",
    section="Transport 12.4",
    payload=frames.ping() + frames.frame(FrameType.MAX_STREAM_DATA, OURS_BIDI),
    suite=Suite.OURS,
)
frame_case(
    E.PROTOCOL_VIOLATION,
    words="HANDSHAKE_DONE is received",
    section="Transport 19.20",
    payload=frames.handshake_done(),
)
frame_case(
    E.PROTOCOL_VIOLATION,
    words="a DATAGRAM frame without max_datagram_frame_size",
    section="RFC 9221 3",
    payload=frames.datagram(b"\x00datagram"),
    suite=Suite.OURS,
)
