"""Compares rules that protect a path in NGINX or Caddy with their equivalents in `pronghorn run`,
for all spellings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.addresses import own_address
from harness.clients.raw_h1 import RawH1
from harness.clients.spelled import Speller
from harness.foreign import nginx, serving_at
from harness.server import TARGET

RULES = """
[[sites.routes]]
match = ["/admin", "/admin/*"]
respond = {{ status = 403 }}
[[sites.routes]]
proxy = "{upstream}"
"""

NGINX = """
access_log off;
server {{
    listen {address};
    location = /admin {{ return 403; }}
    location /admin/ {{ return 403; }}
    location / {{ proxy_pass {upstream}; }}
}}
"""

CADDY = """{{
    admin off
    auto_https off
}}
http://:{port} {{
    bind {host}
    handle /admin {{
        respond 403
    }}
    handle /admin/* {{
        respond 403
    }}
    handle {{
        reverse_proxy {upstream}
    }}
}}
"""

CADDY_PROGRAM = Path(os.environ.get("PRONGHORN_BENCH_CADDY") or TARGET / "bench-peers" / "caddy")

SPELLINGS = [
    "/admin",
    "/admin/",
    "/admin/secret",
    "//admin/secret",
    "/admin//secret",
    "///admin///",
    "/./admin/secret",
    "/admin/./secret",
    "/x/../admin/secret",
    "/x/y/../../admin/secret",
    "/x/%2e%2e/admin/secret",
    "/x/.%2E/admin/secret",
    "/%2e/admin/secret",
    "/%61dmin/secret",
    "/admi%6E/secret",
    "/%61%64%6d%69%6e",
    "/admin%2Fsecret",
    "/admin%2fsecret",
    "/%2Fadmin/secret",
    "/x%2F..%2Fadmin/secret",
    "/x/..%2fadmin/secret",
    "/admin?x=/../..",
    "/admin/?",
    "/admin/secret?/public/",
    "/admin/%",
    "/admin/%zz",
    "/admin/%00",
    "/admin%00/secret",
    "/admin/../admin/secret",
    "/admin/x/..",
    "/admin/..%2Fx",
    "/admin/\\secret",
    "/admin/secret;x",
    "/admin/%3Fx",
    "/admin/%23x",
]
OPEN = ["/", "/public", "/administrator", "/x/admin", "/public/../x", "/a%20b", "/x?admin"]

ADMIN = "/ADMIN/secret"
"""Caddy ignores case in paths; docs/gateway/from-caddy.md says that Pronghorn does not."""


@contextmanager
def caddy(folder: Path, upstream: str) -> Iterator[str]:
    address = own_address()
    host, _, port = address.partition(":")
    # For each `Host`: a host without a site gets an empty 200.
    (folder / "Caddyfile").write_text(CADDY.format(host=host, port=port, upstream=upstream))
    command = [CADDY_PROGRAM, "run", "--adapter", "caddyfile", "--config", folder / "Caddyfile"]
    with serving_at(address, command, env={"HOME": str(folder), "XDG_DATA_HOME": str(folder)}):
        yield f"http://{address}"


def status_of(origin: str, path: str) -> int | None:
    """Sends a request to a clear-text server; returns None if it closes the connection instead."""
    with RawH1(origin, None) as client:
        client.socket.sendall(
            f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
        )
        line = client.socket.makefile("rb").readline().split()
    return int(line[1]) if len(line) > 1 else None


def protects_as(other: str, client: Speller, spellings: list[str]) -> None:
    protected = [path for path in spellings if status_of(other, path) != 200]
    # Otherwise the comparison would show nothing.
    assert len(protected) > len(spellings) // 2, protected
    let_through = [path for path in protected if client.ask(path).status == 200]
    assert let_through == []
    for path in OPEN:
        assert (status_of(other, path), client.ask(path).status) == (200, 200), path


def test_nginx_rules_protect_the_same_spellings(speak, up, tmp_path):
    with nginx(tmp_path, NGINX, upstream=up.address) as address:
        protects_as(f"http://{address}", speak(RULES.format(upstream=up.address)), SPELLINGS)


@pytest.mark.long
def test_caddy_rules_protect_the_same_spellings(speak, up, tmp_path):
    if not CADDY_PROGRAM.is_file():
        pytest.fail(
            f"{CADDY_PROGRAM} not found: run `bench/setup caddy`, or set PRONGHORN_BENCH_CADDY to its path"
        )
    with caddy(tmp_path, up.address) as origin:
        client = speak(RULES.format(upstream=up.address))
        protects_as(origin, client, SPELLINGS)
        assert (status_of(origin, ADMIN), client.ask(ADMIN).status) == (403, 200)
