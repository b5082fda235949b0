"""Early responses to uploads over HTTP/2: the response arrives, whatever the window allows."""

from __future__ import annotations

import pytest

from harness.clients.h2_frames import H2Client
from harness.gateway import SITE

LIMIT = 100 << 10


@pytest.fixture
def limited(start, gateway, up):
    layer = f'layers = [{{ name = "body-limit", size = "{LIMIT >> 10}KiB" }}]'
    gateway.write(SITE + f'[[sites.routes]]\nproxy = "{up.address}"\n{layer}\n')
    return start(gateway.command())


def send_all_that_the_window_allows(client: H2Client, stream: int) -> int:
    sent = 0
    while size := min(
        client.http.local_flow_control_window(stream), client.http.max_outbound_frame_size
    ):
        client.http.send_data(stream, bytes(size))
        client.flush()
        sent += size
    return sent


def test_response_to_an_upload_over_a_limit_is_not_followed_by_a_reset(limited, ca):
    with H2Client(limited.origin, ca) as client:
        # The server's SETTINGS and WINDOW_UPDATEs have arrived.
        assert client.fetch("/").status == 200
        stream = client.start("/", method="PUT", end=False)
        # The client does not read in between, like clients that send as long as their window
        # allows.
        assert send_all_that_the_window_allows(client, stream) > 4 * LIMIT
        answer = client.finish(stream)
        assert (answer.status, answer.body) == (413, b"request body too large\n")
        # The response to a later request follows everything that the server sends for the first.
        assert client.fetch("/").status == 200
        assert client.exchanges[stream].reset is None


def test_upload_that_continues_after_its_response_is_stopped(limited, ca):
    with H2Client(limited.origin, ca) as client:
        assert client.fetch("/").status == 200
        stream = client.start("/", method="PUT", end=False)
        exchange = client.exchanges[stream]
        sent = 0
        while exchange.reset is None:
            sent += send_all_that_the_window_allows(client, stream)
            assert client.read()
        assert (exchange.ended, exchange.reset) == (True, 0)
        assert sent < 64 << 20
        assert client.fetch("/").status == 200
