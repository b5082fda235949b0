"""A real page in Chromium over each protocol, and the browser's switch from HTTP/2 to HTTP/3."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from conftest import random_bytes
from harness.clients.chromium import NAME, common_flags, protocol_flags, visit

IMAGES = 24

# The smallest PNG: one transparent pixel. Noise after its end makes each image a download of some
# size.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

SCRIPT = """
const data = await (await fetch('data.json')).json();
const posted = await fetch('missing', { method: 'GET' });
globalThis.result = { sum: data.numbers.reduce((a, b) => a + b, 0), missing: posted.status };
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    images = "".join(f'<img src="image-{index}.png" alt="">' for index in range(IMAGES))
    (tmp_path / "index.html").write_text(
        "<!doctype html><title>page</title><link rel=icon href=data:,><link rel=stylesheet href=style.css>"
        f"<script type=module src=app.js></script>{images}"
    )
    (tmp_path / "style.css").write_text("img { width: 4px }\n" + "/* filler */\n" * 2000)
    (tmp_path / "app.js").write_text(SCRIPT)
    (tmp_path / "data.json").write_text('{"numbers": [1, 2, 3, 4]}')
    for index in range(IMAGES):
        (tmp_path / f"image-{index}.png").write_bytes(PNG + random_bytes(20_000, f"image {index}"))
    return tmp_path


def assert_page_is_whole(visited: dict) -> None:
    assert visited["title"] == "page"
    assert visited["result"] == {"sum": 10, "missing": 404}
    assert visited["images"] == [{"complete": True, "width": 1}] * IMAGES
    statuses = {
        request["url"].rsplit("/", 1)[1]: request.get("status") for request in visited["requests"]
    }
    assert statuses.pop("missing") == 404
    assert set(statuses.values()) == {200}
    assert len(statuses) == IMAGES + 4
    assert [request for request in visited["requests"] if not request.get("finished")] == []


@pytest.mark.parametrize("protocol", ["http/1.1", "h2", "h3"])
def test_page_loads_whole_over_the_protocol_asked_for(start_serve, identity, page, protocol):
    server = start_serve(directory=page)
    flags = common_flags(identity.spki_hash) + protocol_flags(protocol, NAME, server.port)
    seen = visit(f"https://{NAME}:{server.port}/", flags)
    visited = seen["visits"][0]
    assert_page_is_whole(visited)
    assert {request["protocol"] for request in visited["requests"]} == {protocol}
    assert visited["protocol"] == protocol
    if protocol != "http/1.1":
        assert len({request["connection"] for request in visited["requests"]}) == 1


def test_browser_goes_from_h2_to_h3_by_alt_svc(start_serve, identity, page):
    server = start_serve(directory=page)
    # Over QUIC, Chromium accepts a private certificate only for a host named in this flag. The
    # wrong port in it forces nothing: Alt-Svc alone brings the browser over.
    flags = [*common_flags(identity.spki_hash), f"--origin-to-force-quic-on={NAME}:1"]
    # The browser goes on over HTTP/2 while it opens the other connection, on a busy machine for some
    # loads.
    seen = visit(f"https://{NAME}:{server.port}/", flags, loads=5)
    for visited in seen["visits"]:
        assert_page_is_whole(visited)
    assert seen["visits"][0]["protocol"] == "h2"
    assert {request["protocol"] for request in seen["visits"][-1]["requests"]} == {"h3"}


def test_page_loads_over_ipv6(start_serve, identity, page):
    server = start_serve(directory=page, listen=("[::1]:0",))
    flags = common_flags(identity.spki_hash, address="[::1]") + protocol_flags(
        "h3", NAME, server.port
    )
    visited = visit(f"https://{NAME}:{server.port}/", flags)["visits"][0]
    assert_page_is_whole(visited)
    assert {request["protocol"] for request in visited["requests"]} == {"h3"}
