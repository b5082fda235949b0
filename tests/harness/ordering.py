"""Servers that order certificates from the test's own authority."""

from __future__ import annotations

import json

from .acme_proxy import PROBLEM, Answer
from .admin import UnixConnection, ask

NAME = "one.pronghorn.test"


def write(gateway, pebble, names=(NAME,), *, listen=None, admin="", state="state") -> None:
    sites = "".join(
        f'[[sites]]\nhosts = ["{name}"]\ntls = "acme"\n[[sites.routes]]\nrespond = "hi"\n'
        for name in names
    )
    server = f'state_dir = "{state}"\n{admin}'
    gateway.write(pebble.settings() + sites, server=server, listen=listen or pebble.listen)


def certificates(socket) -> list[dict]:
    _, status = ask(UnixConnection(socket), "GET", "/status")
    return status["certificates"]


def errors_of(server) -> list[str]:
    return [line for line in server.lines if "error" in line]


def limited(retry_after: str | None) -> Answer:
    problem = {"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many orders"}
    headers = [PROBLEM, *([("retry-after", retry_after)] if retry_after else [])]
    return Answer(429, headers, json.dumps(problem).encode())
