"""Compares HTTP/2 and HTTP/3 in browsers: how fast a style sheet overtakes images on a link of 20
Mbit/s.
"""

from __future__ import annotations

import base64
import math
import shlex
import statistics
from collections.abc import Callable

import pytest

from conftest import random_bytes
from harness.clients import chromium, firefox
from harness.clients.browser import Browser
from harness.server import pronghorn, serve_command

ADDRESS, PORT, NAME = "10.77.0.2", 443, chromium.NAME
PROFILE = """
name = "test"
[up]
rate_mbit_per_second = 20
delay_ms = 20
queue_ms = 100
[down]
rate_mbit_per_second = 20
delay_ms = 20
queue_ms = 100
"""

IMAGES, IMAGE_BYTES, CSS_BYTES = 6, 1_500_000, 300_000
ASKED_AFTER_MS = 400
"""The style sheet is requested after the images have been loading for this long."""
MOST_OVER_HTTP3 = 1.2
"""Maximum ratio of the time over HTTP/2 to that over HTTP/3. It was 2.4 when all responses shared
the connection equally.
"""

# One transparent pixel; noise after its end makes it a download.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

# The result: milliseconds from the request for the images to the end of the style sheet.
SCRIPT = f"""(async () => {{
  const begun = performance.now();
  const images = Array.from({{ length: {IMAGES} }}, (_, number) => {{
    const image = new Image();
    image.src = `${{number}}.png`;
    document.body.append(image);
    return image;
  }});
  const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
  await pause({ASKED_AFTER_MS});
  while (images.every((image) => image.naturalWidth === 0)) await pause(5);
  const sheet = document.createElement('link');
  const loaded = new Promise((resolve, reject) => {{
    sheet.onload = resolve;
    sheet.onerror = reject;
  }});
  sheet.rel = 'stylesheet';
  sheet.href = 'style.css';
  document.head.append(sheet);
  await loaded;
  const done = performance.now();
  const {{ nextHopProtocol, decodedBodySize }} = performance.getEntriesByName(sheet.href)[0];
  return {{
    took: done - begun,
    protocol: nextHopProtocol,
    bytes: decodedBodySize,
    images: images.filter((image) => image.complete).length,
  }};
}})()"""


def chromium_options(identity, protocol: str) -> dict:
    flags = chromium.common_flags(identity.spki_hash, ADDRESS) + chromium.protocol_flags(
        protocol, NAME, PORT
    )
    return chromium.chromium_options(flags)


def firefox_options(_identity, protocol: str) -> dict:
    asked = firefox.common_preferences(ADDRESS) | firefox.protocol_preferences(protocol, NAME, PORT)
    return firefox.firefox_options(asked)


@pytest.fixture(params=[chromium_options, firefox_options], ids=["chromium", "firefox"])
def took_ms(request, identity, tmp_path) -> Callable[[str], float]:
    """Loads the page in a new browser over a new link; returns the time when the style sheet was
    complete.

    State of the first load would affect a second one: TCP's metrics cache for the path, and
    cancelled images in flight.
    """
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text(
        "<!doctype html><title>page</title><link rel=icon href=data:,><body>"
    )
    (folder / "style.css").write_text("/*" + "x" * (CSS_BYTES - 4) + "*/")
    for number in range(IMAGES):
        noise = random_bytes(IMAGE_BYTES - len(PNG), f"image {number}")
        (folder / f"{number}.png").write_bytes(PNG + noise)
    profile = tmp_path / "profile.toml"
    profile.write_text(PROFILE)
    serve = serve_command(
        folder, identity, "--congestion", "cubic", "--quiet", listen=(f"{ADDRESS}:{PORT}",)
    )
    far = shlex.join(str(part) for part in serve)
    link = [
        pronghorn(),
        "link",
        profile,
        "--tcp-congestion",
        "cubic",
        "--far",
        far,
        "--far-ready",
        PORT,
        "--",
    ]

    def load(protocol: str) -> float:
        with Browser(request.param(identity, protocol), prefix=link) as browser:
            browser.visit(f"https://{NAME}/")
            seen = browser.evaluate(SCRIPT)
        assert (seen["protocol"], seen["bytes"]) == (protocol, CSS_BYTES)
        assert seen["images"] < IMAGES
        return seen["took"]

    return load


@pytest.mark.timeout(900)
def test_style_sheet_overtakes_images_over_http2_as_over_http3(took_ms):
    """Compares the fastest of three loads, or of more on a busy machine: other load only slows a
    load down.
    """
    took = dict.fromkeys(("h3", "h2"), math.inf)
    for loads in range(1, 9):
        for protocol in took:
            took[protocol] = min(took[protocol], took_ms(protocol))
        if loads >= 3 and took["h2"] <= MOST_OVER_HTTP3 * took["h3"]:
            break
    assert took["h2"] <= MOST_OVER_HTTP3 * took["h3"], took


@pytest.mark.long
def test_style_sheet_overtakes_images_over_http2_as_over_http3_in_the_median(took_ms):
    took = {"h2": [], "h3": []}
    for _ in range(11):
        for protocol, values in took.items():
            values.append(took_ms(protocol))
    print({protocol: sorted(map(round, values)) for protocol, values in took.items()})
    assert statistics.median(took["h2"]) <= MOST_OVER_HTTP3 * statistics.median(took["h3"]), took
