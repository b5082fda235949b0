"""RFC 9001, and the rules of RFC 8446 that it changes."""

from __future__ import annotations

from harness.clients import quic_frames as frames
from harness.clients.client_hello import Extension, handshake_message, with_extensions
from harness.clients.quic_packets import Close, Level, TransportError

from .case import Alert, Suite, Target, case, in_handshake

KEY_UPDATE = handshake_message(24, b"\x01")
END_OF_EARLY_DATA = handshake_message(5, b"")


def in_second_flight(target: Target, edit) -> Close | None:
    """Runs a handshake with a modified Finished message."""
    return in_handshake(
        target.quic(
            edit_crypto=lambda level, data: edit(data) if level == Level.HANDSHAKE else data
        )
    )


@case(Alert.UNEXPECTED_MESSAGE, words="KeyUpdate in Handshake is received", section="TLS 6")
def key_update_in_handshake(target: Target) -> Close | None:
    return in_second_flight(target, lambda finished: finished + KEY_UPDATE)


@case(Alert.UNEXPECTED_MESSAGE, words="KeyUpdate in 1-RTT is received", section="TLS 6")
def key_update_in_one_rtt(target: Target) -> Close | None:
    with target.connected() as quic:
        quic.send_crypto(KEY_UPDATE, Level.ONE_RTT)
        return quic.settle()


@case(
    Alert.NO_APPLICATION_PROTOCOL, words="no application protocols are supported", section="TLS 8.1"
)
def foreign_protocol(target: Target) -> Close | None:
    return in_handshake(target.quic(alpn=["dummy"]))


@case(
    Alert.NO_APPLICATION_PROTOCOL,
    words="no application protocols are offered",
    section="TLS 8.1",
    suite=Suite.OURS,
)
def no_protocol(target: Target) -> Close | None:
    return in_handshake(target.quic(alpn=None))


@case(
    Alert.MISSING_EXTENSION,
    words="the quic_transport_parameters extension does not included",
    section="TLS 8.2",
)
def no_parameters(target: Target) -> Close | None:
    drop = with_extensions(
        lambda extensions: [
            each for each in extensions if each[0] != Extension.QUIC_TRANSPORT_PARAMETERS
        ]
    )
    return in_handshake(target.quic(edit_hello=drop))


@case(
    Alert.MISSING_EXTENSION,
    words="the quic_transport_parameters extension does not included (under its draft's number)",
    section="TLS 8.2",
    known="rustls accepts the number of the drafts in every version",
)
def draft_parameters(target: Target) -> Close | None:
    draft = 0xFFA5
    rename = with_extensions(
        lambda extensions: [
            (draft if kind == Extension.QUIC_TRANSPORT_PARAMETERS else kind, body)
            for kind, body in extensions
        ]
    )
    return in_handshake(target.quic(edit_hello=rename))


@case(Alert.UNEXPECTED_MESSAGE, words="EndOfEarlyData is received", section="TLS 8.3")
def end_of_early_data(target: Target) -> Close | None:
    return in_second_flight(target, lambda finished: END_OF_EARLY_DATA + finished)


@case(TransportError.PROTOCOL_VIOLATION, words="CRYPTO in 0-RTT is received", section="TLS 8.3")
def crypto_in_zero_rtt(target: Target) -> Close | None:
    ticket = early_data_ticket(target)
    quic = target.quic(ticket=ticket)
    quic.start()
    quic.send(frames.crypto(0, handshake_message(8, b"\x00\x00")), level=Level.ZERO_RTT)
    return in_handshake(quic)


def early_data_ticket(target: Target):
    with target.connected() as quic:
        quic.wait("a session ticket", lambda: quic.tickets)
        ticket = quic.tickets[0]
    assert ticket.max_early_data_size is not None, "the server rejects early data"
    return ticket


@case(
    Alert.PROTOCOL_VERSION,
    Alert.MISSING_EXTENSION,
    words="a ClientHello that offers TLS 1.2 alone",
    section="TLS 4.2",
    suite=Suite.OURS,
)
def tls_1_2(target: Target) -> Close | None:
    old = with_extensions(
        lambda extensions: [
            (kind, b"\x02\x03\x03" if kind == Extension.SUPPORTED_VERSIONS else body)
            for kind, body in extensions
        ]
    )
    return in_handshake(target.quic(edit_hello=old))


@case(
    Alert.UNEXPECTED_MESSAGE,
    words="the first TLS message is no ClientHello",
    section="TLS 4.1.3",
    suite=Suite.OURS,
)
def no_hello(target: Target) -> Close | None:
    quic = target.quic(edit_crypto=lambda _level, data: bytes([20]) + data[1:])
    return in_handshake(quic)


@case(
    Alert.DECODE_ERROR,
    Alert.ILLEGAL_PARAMETER,
    words="a ClientHello whose extensions are cut short",
    section="TLS 4.1.3",
    suite=Suite.OURS,
)
def broken_hello(target: Target) -> Close | None:
    def cut(message: bytes) -> bytes:
        body = message[4:-7]
        return handshake_message(1, body)

    return in_handshake(target.quic(edit_hello=cut))
