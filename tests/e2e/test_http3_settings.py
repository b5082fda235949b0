"""SETTINGS are sent as soon as there are keys for them (RFC 9114 section 7.2.4)."""

from __future__ import annotations

from harness.clients.quic_packets import Level
from harness.clients.raw_quic import RawQuic

CONTROL_STREAM_WITH_SETTINGS = b"\x00\x04"


def has_settings(quic: RawQuic) -> bool:
    return any(
        stream % 4 == 3 and incoming.data.startswith(CONTROL_STREAM_WITH_SETTINGS)
        for stream, incoming in quic.streams.items()
    )


def test_settings_are_sent_before_the_handshake_ends(start_serve, ca):
    """Firefox only resumes a session whose SETTINGS arrived before the ticket."""
    server = start_serve()
    finished_is_lost = {
        "edit_crypto": lambda level, data: b"" if level == Level.HANDSHAKE else data
    }
    with RawQuic(server.origin, ca, **finished_is_lost) as quic:
        quic.start()
        quic.wait("SETTINGS", lambda: has_settings(quic))
        assert not quic.confirmed
        assert not quic.tickets
