"""Uploads over HTTP/2 that are answered before their end: the answer arrives, whatever the window still allows."""

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
    while size := min(client.http.local_flow_control_window(stream), client.http.max_outbound_frame_size):
        client.http.send_data(stream, bytes(size))
        client.flush()
        sent += size
    return sent


def test_answer_to_an_upload_that_passes_a_limit_is_not_followed_by_a_reset(limited, ca):
    with H2Client(limited.origin, ca) as client:
        # The settings and windows of the server are there.
        assert client.fetch("/").status == 200
        stream = client.start("/", method="PUT", end=False)
        # Nothing is read meanwhile, as by clients that send as long as they may.
        assert send_all_that_the_window_allows(client, stream) > 4 * LIMIT
        answer = client.finish(stream)
        assert (answer.status, answer.body) == (413, b"the content is too large\n")
        # An answer to a later request comes after whatever the server has had to say of the first one.
        assert client.fetch("/").status == 200
        assert client.exchanges[stream].reset is None


def test_upload_that_goes_on_after_its_answer_is_stopped(limited, ca):
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
