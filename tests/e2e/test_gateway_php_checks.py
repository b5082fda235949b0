"""Health checks of PHP-FPM and other FastCGI applications."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.admin import UnixConnection, ask, metrics
from harness.fastcgi import HEAD, Asked, application, end, output, sent
from harness.gateway import SITE
from harness.php import php_fpm
from harness.waiting import eventually

OFTEN = 'every = "100ms", failures = 2, successes = 2'
UP = 'pronghorn_upstream_server_up{upstream="app",server="%s"}'


def served(start, gateway, www: Path, servers: list[str], check: str):
    addresses = ", ".join(f'"{server}"' for server in servers)
    upstream = f'[upstreams.app]\nservers = [{addresses}]\nprotocol = "fastcgi"\npolicy = "first"\ncheck = {check}\n'
    route = f'[[sites.routes]]\nphp = {{ root = "{www}", server = "app" }}\n'
    gateway.write(SITE + route + upstream, server='state_dir = "state"', workers=2)
    return start(gateway.command())


def states(gateway) -> list[str]:
    _, answer = ask(UnixConnection(gateway.folder / "state" / "admin.sock"), "GET", "/status")
    return [server["state"] for server in answer["upstream_servers"]]


def test_dead_php_fpm_gets_no_requests_until_it_is_back(
    start, gateway, tmp_path, www, protocol_fetcher
):
    first, second = tmp_path / "first", tmp_path / "second"
    with php_fpm(second) as other:
        with php_fpm(first) as one:
            server = served(
                start,
                gateway,
                www,
                [f"unix:{one}", f"unix:{other}"],
                f'{{ path = "/ping", {OFTEN} }}',
            )
            assert protocol_fetcher.fetch(server.origin + "/").status == 200
            eventually("both are up", lambda: states(gateway) == ["up", "up"])
        server.wait_for_lines(
            f"^warning: upstream app: unix:{one}: health check of /ping: .*connect"
        )
        server.wait_for_lines(f"^warning: upstream app: unix:{one} is down: its checks failed$")
        found = metrics(gateway.folder / "state" / "admin.sock")
        assert (found[UP % f"unix:{one}"], found[UP % f"unix:{other}"]) == (0, 1)
        # No client's request has to find out that a server is down.
        assert protocol_fetcher.fetch(server.origin + "/").status == 200
        assert not [line for line in server.lines if "retried on another server" in line]
        with php_fpm(first) as again:
            assert again == one
            server.wait_for_lines(f"^upstream app: unix:{one} is back in rotation$")
            assert states(gateway) == ["up", "up"]
            assert protocol_fetcher.fetch(server.origin + "/").status == 200


@pytest.mark.parametrize("path", ["/ping", "/status?json"])
def test_only_php_fpm_gets_no_requests_while_down(
    start, gateway, tmp_path, www, protocol_fetcher, path
):
    with php_fpm(tmp_path / "fpm") as socket:
        server = served(start, gateway, www, [f"unix:{socket}"], f'{{ path = "{path}", {OFTEN} }}')
        assert protocol_fetcher.fetch(server.origin + "/").status == 200
    server.wait_for_lines("is down: its checks failed$")
    refused = protocol_fetcher.fetch(server.origin + "/")
    assert (refused.status, refused.header("retry-after")) == (503, "1")
    # Static files need no application.
    assert protocol_fetcher.fetch(server.origin + "/style.css").status == 200
    with php_fpm(tmp_path / "fpm"):
        server.wait_for_lines("is back in rotation$")
        assert protocol_fetcher.fetch(server.origin + "/").status == 200


def test_path_unknown_to_php_fpm_is_a_failed_check(start, gateway, tmp_path, www):
    with php_fpm(tmp_path / "fpm") as socket:
        server = served(start, gateway, www, [f"unix:{socket}"], f'{{ path = "/pong", {OFTEN} }}')
        server.wait_for_lines(f"unix:{socket}: health check of /pong: unexpected status 404$")
        server.wait_for_lines("Primary script unknown")
        server.wait_for_lines("is down: its checks failed$")
        assert states(gateway) == ["down"]


def test_script_reports_the_health_of_the_application(start, gateway, tmp_path, www):
    sick, seen = tmp_path / "sick", tmp_path / "seen"
    (www / "health.php").write_text(
        f"""<?php
        file_put_contents('{seen}.new', json_encode($_SERVER));
        rename('{seen}.new', '{seen}');
        http_response_code(file_exists('{sick}') ? 503 : 200);
        error_log('a complaint');
        """
    )
    check = f'{{ path = "/health?full", script = "{www}/health.php", host = "shop.example:8443", {OFTEN} }}'
    with php_fpm(tmp_path / "fpm") as socket:
        server = served(start, gateway, www, [f"unix:{socket}"], check)
        eventually("a check", seen.exists)
        told = json.loads(seen.read_text())
        wanted = {
            "REQUEST_METHOD": "GET",
            "REQUEST_URI": "/health?full",
            "QUERY_STRING": "full",
            "SCRIPT_NAME": "/health",
            "SCRIPT_FILENAME": f"{www}/health.php",
            "SERVER_NAME": "shop.example",
            "SERVER_PORT": "8443",
            "HTTP_HOST": "shop.example:8443",
            "HTTP_USER_AGENT": "pronghorn-check",
            "REMOTE_ADDR": "127.0.0.1",
        }
        assert {name: told.get(name) for name in wanted} == wanted
        assert states(gateway) == ["up"]
        sick.touch()
        server.wait_for_lines("health check of /health: unexpected status 503$")
        server.wait_for_lines("is down: its checks failed$")
        before = len(server.lines)
        asked = seen.stat().st_mtime_ns
        eventually("more checks", lambda: seen.stat().st_mtime_ns > asked)
        assert len(server.lines) == before, (
            "failed checks of a server that is down must not be logged again"
        )
        sick.unlink()
        server.wait_for_lines("is back in rotation$")


def test_other_application_is_checked_with_the_path(start, gateway, tmp_path, www):
    asked: list[Asked] = []
    with application(sent(output(b"Status: 204\r\n\r\n") + end()), asked) as address:
        check = f'{{ path = "/health", {OFTEN} }}'
        route = f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], check = {check} }}\n'
        gateway.write(SITE + route, server='state_dir = "state"')
        start(gateway.command())
        eventually("several checks", lambda: len(asked) > 2)
        told = asked[0]
        assert (told.parameter("SCRIPT_NAME"), told.parameter("PATH_INFO")) == ("", "/health")
        assert (told.parameter("REQUEST_URI"), told.parameter("SCRIPT_FILENAME")) == (
            "/health",
            None,
        )
        assert states(gateway) == ["up"]


@pytest.mark.parametrize(
    "answer",
    [
        output(HEAD + b"half a page"),
        output(b"Content-Length: 100\r\n\r\nhalf a page") + end(),
        output(b"Status: 500\r\n\r\n") + end(),
    ],
    ids=["breaks off", "short", "status"],
)
def test_incomplete_or_error_response_is_a_failed_check(start, gateway, answer):
    with application(sent(answer)) as address:
        check = f'{{ path = "/health", {OFTEN} }}'
        gateway.write(
            SITE + f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], check = {check} }}\n'
        )
        start(gateway.command()).wait_for_lines("is down: its checks failed$")
