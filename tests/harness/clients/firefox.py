"""Headless Firefox, through tests/clients/browser."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

NAME = "page.test"
"""The host in a page's URL."""

PLACES = ["/usr/lib/firefox-esr/firefox-esr", shutil.which("firefox-esr"), shutil.which("firefox")]


def firefox() -> Path:
    for place in [os.environ.get("FIREFOX"), *PLACES]:
        if place and Path(place).is_file():
            return Path(place)
    raise FileNotFoundError("Firefox is not there: run `scripts/setup`, or set FIREFOX to its path")


def common_preferences(address: str = "127.0.0.1") -> dict[str, Any]:
    return {
        # Every name resolves to this address: the browser's own services reach only the server
        # under test.
        "network.dns.forceResolve": address,
        # launch.mjs makes the browser accept certificates of the tests. Without this it accepts
        # them only over TCP.
        "network.http.http3.disable_when_third_party_roots_found": False,
        # Otherwise it opens another connection when one takes longer than a quarter of a second.
        "network.http.connection-retry-timeout": 0,
    }


def protocol_preferences(protocol: str, host: str, port: int) -> dict[str, Any]:
    """Makes the browser use one protocol from its first request on."""
    return {
        "h2": {"network.http.http3.enable": False},
        "h3": {
            "network.http.http3.alt-svc-mapping-for-testing": f"{host};h3=:{port}",
            "network.http.http3.force-use-alt-svc-mapping-for-testing": True,
            # Milliseconds of a handshake after which TCP is tried as well.
            "network.http.http3.backup_timer_delay": 60_000,
        },
    }[protocol]


def firefox_options(preferences: dict[str, Any]) -> dict[str, Any]:
    """Returns the launch options for tests/clients/browser."""
    return {"browser": "firefox", "program": str(firefox()), "preferences": preferences}
