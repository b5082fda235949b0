"""An upstream that speaks HTTP/2 in clear text, and responds as the test says."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import h2.config
import h2.connection
import h2.events

from .serving import listening

Answer = Callable[[h2.connection.H2Connection, int, list[tuple[str, str]]], None]
"""Gets the connection, the stream and the fields of a complete request."""


@contextmanager
def h2_origin(answer: Answer) -> Iterator[str]:
    """Serves one connection after the other, and sends what `answer` writes to it."""

    peers: list[socket.socket] = []

    def serve(peer: socket.socket) -> None:
        peers.append(peer)
        # A test's response may break rules.
        config = h2.config.H2Configuration(
            client_side=False,
            header_encoding="utf-8",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        connection = h2.connection.H2Connection(config)
        connection.initiate_connection()
        peer.sendall(connection.data_to_send())
        requests: dict[int, list[tuple[str, str]]] = {}
        while piece := peer.recv(65536):
            for event in connection.receive_data(piece):
                if isinstance(event, h2.events.RequestReceived):
                    requests[event.stream_id] = event.headers
                elif isinstance(event, h2.events.DataReceived):
                    connection.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
                elif isinstance(event, h2.events.StreamEnded):
                    answer(connection, event.stream_id, requests.pop(event.stream_id))
            peer.sendall(connection.data_to_send())

    with listening(serve) as address:
        try:
            yield f"http://{address}"
        finally:
            # The gateway would keep its connection open.
            for peer in peers:
                with suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)
