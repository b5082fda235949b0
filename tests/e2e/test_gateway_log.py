"""The access log of `pronghorn run`."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from harness.admin import UnixConnection, ask, metrics
from harness.clients import FETCHERS
from harness.gateway import SITE
from harness.waiting import eventually

ROUTED = SITE + '[[sites.routes]]\nrespond = "four"\n'


def write(gateway, log: str) -> None:
    gateway.write(ROUTED + f"[log]\n{log}\n", server='state_dir = "state"')


def lines(gateway, count: int, name: str = "access.log") -> list[str]:
    def read():
        found = (gateway.folder / name).read_text().splitlines()
        return found if len(found) >= count else None

    return eventually(f"{count} lines", read)


def test_json_line_has_request_and_response(start, gateway, fetcher):
    write(gateway, 'access = "access.log"\nformat = "json"')
    server = start(gateway.command())
    fetcher.fetch(
        server.origin + "/a?b=c",
        headers=[("user-agent", 'my "agent"'), ("referer", "https://example.org/")],
    )
    (line,) = lines(gateway, 1)
    entry = json.loads(line)
    expected = {
        "client": "127.0.0.1",
        "protocol": fetcher.protocol,
        "host": "127.0.0.1",
        "method": "GET",
        "status": 200,
    }
    assert entry | expected == entry
    assert (entry["target"], entry["bytes"], entry["aborted"], entry["tls"]) == (
        "/a?b=c",
        4,
        False,
        True,
    )
    assert (entry["user_agent"], entry["referer"]) == ('my "agent"', "https://example.org/")


def test_combined_line_has_the_combined_log_format(start, gateway, protocol_fetcher):
    write(gateway, 'access = "access.log"\nformat = "combined"')
    server = start(gateway.command())
    protocol_fetcher.fetch(server.origin + "/a", headers=[("user-agent", 'a"b')])
    (line,) = lines(gateway, 1)
    pattern = r'127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d \+0000\] "GET /a (HTTP/[\d.]+)" 200 4 "-" "a\\x22b"'
    # As other web servers write it.
    written = {"HTTP/1.1": "HTTP/1.1", "HTTP/2": "HTTP/2.0", "HTTP/3": "HTTP/3.0"}
    assert re.fullmatch(pattern, line)[1] == written[protocol_fetcher.protocol]


@pytest.mark.parametrize("way", ["signal", "admin"])
def test_moved_log_is_reopened(start, gateway, protocol_fetcher, way):
    write(gateway, 'access = "access.log"')
    server = start(gateway.command())
    protocol_fetcher.fetch(server.origin + "/before")
    lines(gateway, 1)
    (gateway.folder / "access.log").rename(gateway.folder / "moved.log")
    protocol_fetcher.fetch(server.origin + "/between")
    lines(gateway, 2, "moved.log")
    if way == "signal":
        server.popen.send_signal(signal.SIGUSR1)
    else:
        answer = ask(UnixConnection(gateway.folder / "state" / "admin.sock"), "POST", "/log/reopen")
        assert answer == (200, {"reopened": True})
    server.wait_for_lines("access log reopened")
    protocol_fetcher.fetch(server.origin + "/after")
    assert "/after" in lines(gateway, 1)[0]
    assert [line.split()[4] for line in lines(gateway, 2, "moved.log")] == ["/before", "/between"]


def test_log_that_cannot_be_reopened_continues(start, gateway, protocol_fetcher):
    logs = gateway.folder / "logs"
    logs.mkdir()
    write(gateway, 'access = "logs/access.log"')
    server = start(gateway.command())
    logs.rename(gateway.folder / "moved")
    answer = ask(UnixConnection(gateway.folder / "state" / "admin.sock"), "POST", "/log/reopen")
    assert answer[0] == 500
    protocol_fetcher.fetch(server.origin + "/still")
    assert "/still" in lines(gateway, 1, "moved/access.log")[0]


def test_full_disk_is_logged_once_and_stops_nothing(start, gateway, protocol_fetcher):
    os.symlink("/dev/full", gateway.folder / "access.log")
    write(gateway, 'access = "access.log"')
    server = start(gateway.command())
    for _ in range(20):
        assert protocol_fetcher.fetch(server.origin + "/").status == 200
    server.wait_for_lines("cannot write to .*access.log: No space left on device")

    def lost() -> int:
        return metrics(gateway.folder / "state/admin.sock")[
            'pronghorn_access_log_lines_total{result="failed"}'
        ]

    eventually("all lost", lambda: lost() == 20)
    assert sum("No space left" in line for line in server.lines) == 1
    (gateway.folder / "access.log").unlink()
    server.popen.send_signal(signal.SIGUSR1)
    server.wait_for_lines("access log reopened")
    protocol_fetcher.fetch(server.origin + "/again")
    assert "/again" in lines(gateway, 1)[0]
    server.wait_for_lines("works again; 20 lines were lost")


def test_reload_changes_the_log_and_loses_no_line(start, gateway, protocol_fetcher):
    write(gateway, 'access = "access.log"')
    server = start(gateway.command())
    protocol_fetcher.fetch(server.origin + "/one")
    # The server may see the end of the response after the client, and writes the line then.
    assert "/one" in lines(gateway, 1)[0]
    write(gateway, 'access = "other.log"\nformat = "common"')
    assert ask(UnixConnection(gateway.folder / "state/admin.sock"), "POST", "/reload")[0] == 200
    protocol_fetcher.fetch(server.origin + "/two")
    assert "/two" in lines(gateway, 1, "other.log")[0]
    server.terminate()
    assert server.wait() == 0, server.lines
    assert (len(lines(gateway, 1)), len(lines(gateway, 1, "other.log"))) == (1, 1)


@pytest.mark.parametrize(
    ("rule", "files"),
    [("", 2), ("share = 0.0", 0), ('clients = ["192.0.2.0/24"]', 0), ("files = 1", 1)],
)
def test_qlog_files_are_written_for_selected_connections(start, gateway, identity, rule, files):
    fetcher = next(fetcher for fetcher in FETCHERS if fetcher.name == "aioquic-h3").trusting(
        identity.ca
    )
    gateway.write(ROUTED + f'[log.qlog]\nfolder = "qlog"\n{rule}\n')
    server = start(gateway.command())
    for _ in range(2):
        assert fetcher.fetch(server.origin + "/").status == 200
    server.terminate()
    assert server.wait() == 0, server.lines
    found = list((gateway.folder / "qlog").glob("*_server.sqlog"))
    assert len(found) == files
    assert all("transport:packet_received" in path.read_text() for path in found)
