"""Response buffering of `pronghorn run`: slow clients do not occupy upstream servers."""

from __future__ import annotations

import hashlib
import re
import threading
from contextlib import ExitStack
from functools import cache

import pytest

from harness import fastcgi
from harness.admin import metrics
from harness.clients import curl
from harness.clients.go import GoClient
from harness.gateway import SITE
from harness.php import php_fpm
from harness.small_disk import small_disk, without_override
from harness.waiting import eventually

MIB = 1 << 20
SIZE = 20 * MIB
LEFT = SIZE // 4
"""Minimum of a response that remains beyond the windows and buffers of a connection."""
NUMBERS = """<?php
header('content-type: ' . ($_GET['type'] ?? 'application/octet-stream'));
if (isset($_GET['accel'])) {
    header('X-Accel-Buffering: ' . $_GET['accel']);
}
for ($line = 0; $line < $_GET['bytes'] / 8; $line++) {
    printf("%07d\\n", $line);
}
"""
"""Content in which no two lines are equal."""
STEPS = """<?php
for ($step = 0; $step < 5; $step++) {
    echo "step $step\\n";
    flush();
    while (!file_exists("{$_GET['signal']}-$step")) {
        usleep(1000);
        clearstatcache();
    }
}
"""
VERSIONS = pytest.mark.parametrize("version", ["1.1", "2", "3"])


@cache
def numbers(size: int) -> str:
    """Returns the SHA-256 of the script's response."""
    return hashlib.sha256(b"".join(b"%07d\n" % line for line in range(size // 8))).hexdigest()


@pytest.fixture
def few(tmp_path):
    """Yields the socket of a PHP-FPM with two processes."""
    with php_fpm(tmp_path / "fpm", children=2) as socket:
        yield socket


def configure(gateway, www, fpm, *, server: str = "", upstream: str = "") -> list:
    (www / "numbers.php").write_text(NUMBERS)
    (www / "steps.php").write_text(STEPS)
    route = f'[[sites.routes]]\nphp = {{ root = "{www}", server = {{ servers = ["unix:{fpm}"]{upstream} }} }}\n'
    gateway.write(SITE + route, server=f'state_dir = "state"\n{server}')
    return gateway.command()


def held(gateway) -> tuple[int, int]:
    """Returns the bytes buffered in memory and on disk."""
    values = metrics(gateway.folder / "state/admin.sock")
    of = {
        place: int(values[f'pronghorn_upstream_buffered_bytes{{place="{place}"}}'])
        for place in ("memory", "disk")
    }
    return of["memory"], of["disk"]


def slow(stack: ExitStack, version: str, ca, url: str) -> GoClient:
    """Starts a client that reads the head of a response and none of the content until it is told
    to.
    """
    client = stack.enter_context(GoClient(version, ca))
    client.send(url, print_head=True, hold=True)
    assert client.receive_head() == 200
    return client


def whole(client: GoClient, size: int = SIZE) -> None:
    """Makes the client read on; it gets the complete response."""
    client.go_on()
    (answer,) = client.receive().responses
    assert (answer.size, answer.sha256) == (size, numbers(size))


@VERSIONS
def test_slow_clients_do_not_occupy_processes(start, gateway, few, www, ca, version):
    server = start(configure(gateway, www, few))
    with ExitStack() as stack:
        # Its timeout is much shorter than that of the slow clients.
        others = stack.enter_context(GoClient(version, ca, timeout_seconds=20))
        assert others.fetch(f"{server.origin}/?do=unread").text() == "enough"
        idle = server.forget_peak()
        clients = []
        for _ in range(2):
            # As many as there are processes.
            clients += [
                slow(stack, version, ca, f"{server.origin}/numbers.php?bytes={SIZE}")
                for _ in range(2)
            ]
            assert all(
                others.fetch(f"{server.origin}/?do=unread").text() == "enough" for _ in range(4)
            )
        eventually("all responses are buffered", lambda: held(gateway)[1] > 4 * LEFT)
        assert held(gateway)[0] <= 4 * (256 << 10)
        assert server.peak_resident_bytes() - idle < SIZE + SIZE // 2
        for client in clients:
            whole(client)
        assert eventually("no bytes are buffered", lambda: held(gateway) == (0, 0))


@VERSIONS
def test_script_is_throttled_when_the_buffers_are_full(start, gateway, few, www, ca, version):
    server = start(
        configure(gateway, www, few, server='buffering = { memory = "64KiB", disk = "1MiB" }')
    )
    with ExitStack() as stack:
        clients = [
            slow(stack, version, ca, f"{server.origin}/numbers.php?bytes={SIZE}") for _ in range(2)
        ]
        eventually("the buffers are almost full", lambda: held(gateway)[1] > MIB - 64 * 1024)
        for client in clients:
            assert held(gateway) <= (64 << 10, MIB)
            whole(client)
        assert eventually("no bytes are buffered", lambda: held(gateway) == (0, 0))


@VERSIONS
def test_streamed_response_is_forwarded_without_delay(start, gateway, few, www, ca, version):
    server = start(configure(gateway, www, few))
    protocol = {"1.1": "HTTP/1.1", "2": "HTTP/2", "3": "HTTP/3"}[version]
    signal = gateway.folder / "signal"
    with curl.session(ca) as session:
        url = f"{server.origin}/steps.php?signal={signal}"
        answer = session.get(url, stream=True, timeout=60, http_version=curl.VERSIONS[protocol])
        for step, piece in enumerate(answer.iter_content()):
            assert piece == b"step %d\n" % step
            (gateway.folder / f"signal-{step}").touch()
        assert step == 4


@pytest.mark.parametrize(
    ("query", "upstream"),
    [("type=text/event-stream", ""), ("accel=no", ""), ("accel=yes", ', buffering = "off"')],
    ids=["events", "x-accel-buffering", "off"],
)
def test_event_stream_with_a_slow_client_is_not_buffered(
    start, gateway, few, www, ca, query, upstream
):
    server = start(configure(gateway, www, few, upstream=upstream))
    url = f"{server.origin}/numbers.php?bytes={SIZE}&{query}"
    with ExitStack() as stack:
        client = slow(stack, "2", ca, url)
        # A later response that is buffered shows that there was time.
        after = (
            slow(stack, "2", ca, f"{server.origin}/numbers.php?bytes={SIZE}")
            if not upstream
            else None
        )
        if after:
            most = eventually(
                "the other response is buffered", lambda: held(gateway)[1] > LEFT and held(gateway)
            )
            assert most[1] <= SIZE
            whole(after)
        assert eventually("no bytes are buffered", lambda: held(gateway) == (0, 0))
        whole(client)


def test_x_accel_buffering_is_not_forwarded(start, gateway, few, www, protocol_fetcher):
    for upstream, shown in (("", None), (', buffering = "off"', "no")):
        server = start(configure(gateway, www, few, upstream=upstream))
        answer = protocol_fetcher.fetch(f"{server.origin}/numbers.php?bytes=80&accel=no")
        assert (answer.header("x-accel-buffering"), answer.sha256) == (shown, numbers(80))


def lines(server) -> list[str]:
    return [line for line in server.lines if "can be buffered" in line or "cannot buffer" in line]


def test_full_disk_is_logged_once_and_breaks_no_response(start, gateway, few, www, ca, tmp_path):
    folder = tmp_path / "buffers"
    command = configure(gateway, www, few, server=f'buffering = {{ folder = "{folder}" }}')
    url = f"/numbers.php?bytes={SIZE}"
    with small_disk(folder, 2 * SIZE) as disk:
        server = start(disk.command(command))
        disk.fill()
        with ExitStack() as stack:
            clients = [slow(stack, "2", ca, server.origin + url) for _ in range(2)]
            server.wait_for_lines(
                f"warning: cannot buffer upstream responses in {re.escape(str(folder))}: No space left on device"
                ".*free disk space, or set `buffering.folder` in "
            )
            for client in clients:
                whole(client)
        assert len(lines(server)) == 1, server.lines
        disk.free()
        with ExitStack() as stack:
            client = slow(stack, "2", ca, server.origin + url)
            server.wait_for_lines("upstream responses can be buffered in .* again")
            eventually("the whole response is buffered", lambda: held(gateway)[1] > LEFT)
            whole(client)
        assert len(lines(server)) == 2, server.lines


def test_unwritable_folder_is_logged_once(start, gateway, few, www, ca, tmp_path):
    folder = tmp_path / "buffers"
    folder.mkdir(mode=0o500)
    server = start(
        without_override(
            configure(gateway, www, few, server=f'buffering = {{ folder = "{folder}" }}')
        )
    )
    with ExitStack() as stack:
        clients = [
            slow(stack, "2", ca, f"{server.origin}/numbers.php?bytes={SIZE}") for _ in range(2)
        ]
        server.wait_for_lines("warning: cannot buffer upstream responses in .*: Permission denied")
        for client in clients:
            whole(client)
    assert len(lines(server)) == 1, server.lines


@VERSIONS
def test_client_disconnect_ends_the_exchange(start, gateway, ca, version):
    has_ended = threading.Event()

    def answer(connection) -> None:
        connection.sendall(fastcgi.output(fastcgi.HEAD))
        try:
            while True:
                connection.sendall(fastcgi.output(bytes(60_000)))
        except ConnectionError:
            has_ended.set()
            raise

    with fastcgi.application(answer) as address:
        bounds = '{ memory = "64KiB", disk = "1MiB" }'
        route = f'[[sites.routes]]\nproxy = {{ servers = ["{address}"], buffering = {bounds} }}\n'
        gateway.write(SITE + route, server='state_dir = "state"')
        server = start(gateway.command())
        with ExitStack() as stack:
            client = slow(stack, version, ca, f"{server.origin}/")
            eventually("the buffers are almost full", lambda: held(gateway)[1] > MIB - 128 * 1024)
            client.popen.kill()
            if version == "3":
                # Over QUIC there is no sign of it: the server waits for the idle timeout or its own
                # shutdown.
                server.terminate()
            assert has_ended.wait(60)
        if version != "3":
            assert eventually("no bytes are buffered", lambda: held(gateway) == (0, 0))


@VERSIONS
def test_http_upstream_with_buffering_is_released_early(start, gateway, up, ca, version):
    content = b"".join(b"%07d\n" % line for line in range(SIZE // 8))
    is_sent = threading.Event()

    def answer(handler, _content) -> None:
        handler.reply(200, content)
        is_sent.set()

    up.routes["/numbers"] = answer
    route = f'[[sites.routes]]\nproxy = {{ servers = ["{up.address}"], buffering = "on" }}\n'
    gateway.write(SITE + route, server='state_dir = "state"')
    server = start(gateway.command())
    with ExitStack() as stack:
        client = slow(stack, version, ca, f"{server.origin}/numbers")
        assert is_sent.wait(60)
        whole(client)
    assert eventually("no bytes are buffered", lambda: held(gateway) == (0, 0))
