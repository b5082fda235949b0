"""Upstream servers by host name, in a mount namespace with the test's own hosts file."""

from __future__ import annotations

import shlex

from harness.gateway import SITE, seen, upstream
from harness.waiting import eventually

NAME = "app.example"


def with_hosts(hosts, command):
    """Returns the command, run with this hosts file."""
    script = (
        f"mount --bind {shlex.quote(str(hosts))} /etc/hosts && exec {shlex.join(map(str, command))}"
    )
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]


def test_requests_follow_dns_and_continue_when_the_name_is_gone(
    start, gateway, tmp_path, protocol_fetcher
):
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 {NAME}\n")
    with (
        upstream("before") as before,
        upstream("after", ("127.0.0.2", before.server_port)) as after,
    ):
        servers = f'servers = ["http://{NAME}:{before.server_port}"]'
        gateway.write(SITE + f'[[sites.routes]]\nproxy = {{ {servers}, resolve = "1s" }}\n')
        server = start(with_hosts(hosts, gateway.command()))

        def answers() -> str:
            return seen(protocol_fetcher.fetch(server.origin + "/"))["server"]

        assert answers() == "before"
        # The connection is kept: only a new lookup shows the change.
        hosts.write_text(f"127.0.0.2 {NAME}\n")
        eventually("requests follow the name", lambda: answers() == "after")
        assert answers() == "after"
        hosts.write_text("127.0.0.3 other.example\n")
        after.routes["/close"] = lambda handler, _: handler.reply(
            200, b"x", [("connection", "close")]
        )
        for _ in range(3):
            assert protocol_fetcher.fetch(server.origin + "/close").status == 200
        assert answers() == "after"
