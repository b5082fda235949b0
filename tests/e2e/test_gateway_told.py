"""Messages of the gateway: all errors of a configuration at once, changes by a reload, and
timestamps.
"""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from harness.clients import curl
from harness.gateway import SITE
from harness.server import pronghorn

MALFORMED = 65

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def command(*arguments) -> subprocess.CompletedProcess[str]:
    whole = [str(part) for part in [pronghorn(), *arguments]]
    return subprocess.run(whole, capture_output=True, text=True, timeout=60)


WRONG = """
[[sites]]
hosts = ["localhost"]
{tls}

[[sites.routes]]
match = "/a**b"
files = "nowhere"
proxy = "nosuch"
layers = ["nolayer", { name = "rate-limit", nokey = 1 }]
cache_control = "\\u0001"
nokey = 1

[[sites.routes]]
match = "/b"
strip_prefix = true
redirect = "here"
errors = { 404 = "none.html" }

[[sites.routes]]
respond = { status = 99 }
upgrades = ["websocket"]
"""

ERRORS = {
    "match": "invalid path pattern",
    "files": "nowhere: No such file or directory",
    "files and proxy": "the route has both `files` and `proxy`",
    "proxy": 'unknown upstream "nosuch"',
    "layer": 'unknown layer "nolayer"',
    "a layer's missing key": 'the layer "rate-limit" has no `requests`; add it, as in { name =',
    "a layer's key": 'unknown key "nokey"; known keys: requests',
    "value": "invalid header value",
    "key": 'unknown key "nokey"; known keys: match',
    "page": "none.html: No such file or directory",
    "status": "invalid status 99",
}


def test_all_errors_are_reported_at_once_and_in_order(gateway):
    gateway.write(WRONG)
    done = command("check", gateway.file)
    assert done.returncode == MALFORMED
    *lines, last = done.stderr.splitlines()
    for what, says in ERRORS.items():
        assert len([line for line in lines if says in line]) == 1, (what, done.stderr)
    assert last == f"error: {gateway.file} has {len(lines)} errors"
    places = [
        tuple(map(int, re.match(rf"{gateway.file}:(\d+):(\d+): ", line).groups())) for line in lines
    ]
    assert places == sorted(places)
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize(
    ("route", "count"),
    [
        ("redirect = { status = 301 }", 1),
        ('respond = { status = "x" }', 1),
        ('match = "a"\nstrip_prefix = true\nproxy = "http://127.0.0.1:1"', 1),
        ('match = []\nproxy = "http://127.0.0.1:1"', 1),
        ('match = ["x", "y"]\nproxy = "http://127.0.0.1:1"', 2),
        ('proxy = "app"\n[upstreams.app]\nservers = ["not an address"]', 1),
        ('proxy = "app"\n[upstreams.app]\nservers = 1', 1),
        ('proxy = 1\nupgrades = { protocols = ["x"] }', 1),
    ],
)
def test_unreadable_value_is_not_reported_as_missing(gateway, route, count):
    gateway.write(SITE + "[[sites.routes]]\n" + route + "\n")
    done = command("check", gateway.file)
    assert done.returncode == MALFORMED
    *lines, _ = done.stderr.splitlines()
    assert len(lines) == count, done.stderr


MISSING, PERMISSION = 66, 77

LACKS = {
    "folder": ('files = "none"\n', "", MISSING),
    "page": ('respond = "x"\nerrors = { 404 = "none" }\n', "", MISSING),
    "trust": ('proxy = { servers = ["https://a:1"], tls = { trust = "none" } }\n', "", MISSING),
    "log": ('respond = "x"\n', '[log]\naccess = "none/log"\n', MISSING),
    "certificate": (
        'respond = "x"\n',
        '[[sites]]\nhosts = ["b"]\ntls = { cert = "none", key = "none" }\n',
        MISSING,
    ),
    "and something wrong": ('files = "none"\nstrip_prefix = true\n', "", MALFORMED),
    "included file": ('respond = "x"\n', "", MISSING),
    "no UTF-8": ('respond = "x"\n', "", MALFORMED),
}


@pytest.mark.parametrize("lack", LACKS)
def test_exit_code_distinguishes_missing_from_invalid(gateway, lack):
    route, more, code = LACKS[lack]
    if "[[sites]]" in more:
        more += '[[sites.routes]]\nrespond = "y"\n'
    gateway.write(SITE + "[[sites.routes]]\n" + route + more)
    if lack == "included file":
        gateway.file.write_text('include = ["none.toml"]\n' + gateway.file.read_text())
    if lack == "no UTF-8":
        gateway.file.write_bytes(gateway.file.read_bytes() + b"# \xff\n")
    for done in command("check", gateway.file), command(*gateway.command()[1:]):
        assert done.returncode == code, done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_exit_code_reports_an_unreadable_file(gateway):
    gateway.write(SITE + '[[sites.routes]]\nrespond = "x"\n')
    gateway.file.chmod(0)
    assert command("check", gateway.file).returncode == PERMISSION


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("127.0.0.1:PORT", "0.0.0.0:PORT"),
        ("http://0.0.0.0:PORT", "127.0.0.1:PORT"),
        ("[::]:PORT", "http://127.0.0.1:PORT"),
        ("[::1]:PORT", "http://[::]:PORT"),
        ("127.0.0.1:PORT", "http://127.0.0.1:PORT"),
    ],
)
def test_overlapping_listen_addresses_are_an_error(gateway, first, second):
    # The port is never bound: the command ends before.
    first, second = first.replace("PORT", "18443"), second.replace("PORT", "18443")
    gateway.write(SITE + '[[sites.routes]]\nrespond = "x"\n', listen=(first, second))
    for done in command("check", gateway.file), command(*gateway.command()[1:]):
        assert done.returncode == MALFORMED, done.stderr
        line, last = done.stderr.splitlines()
        assert line.startswith(f"{gateway.file}:2:"), line
        assert " overlap; " in line or "duplicate listen address" in line
        assert last == f"error: {gateway.file} has an error"
    served = command("serve", gateway.folder, "--listen", first, "--listen", second)
    assert served.returncode == 2, served.stderr
    assert " overlap; " in served.stderr


def test_check_counts_warnings(gateway):
    addresses = ("http://127.0.0.1:0", "127.0.0.1:0", "[::1]:0")
    gateway.write(
        '[[sites]]\nhosts = ["localhost"]\n[[sites.routes]]\nrespond = "x"\n', listen=addresses
    )
    done = command("check", gateway.file)
    assert (done.returncode, done.stdout) == (
        0,
        f"{gateway.file}: 1 site, 1 route, 0 upstreams: 2 warnings\n",
    )
    for line, address in zip(done.stderr.splitlines(), addresses[1:], strict=True):
        assert line.startswith("warning: ")
        assert f"TLS handshakes at {address} will fail: no site has a certificate; " in line
    gateway.write(SITE + '[[sites.routes]]\nrespond = "x"\n', listen=addresses)
    done = command("check", gateway.file)
    assert (done.stdout, done.stderr) == (
        f"{gateway.file}: 1 site, 1 route, 0 upstreams: no warnings\n",
        "",
    )


NOTHING_DONE = '[[sites.routes]]\nmatch = "/{number}"\n'
NO_PATH = '[[sites.routes]]\nmatch = "{number}"\nrespond = "x"\n'


def test_many_errors_are_counted_and_the_first_are_shown(start, gateway):
    """A search from the start of the file for each error would not end in time."""
    many = SITE + "".join(NOTHING_DONE.format(number=number) for number in range(20_000))
    gateway.write(SITE + '[[sites.routes]]\nrespond = "x"\n', server='state_dir = "state"')
    start(gateway.command())
    gateway.write(many, server='state_dir = "state"')
    done = command("check", gateway.file)
    assert done.returncode == MALFORMED
    *lines, more, last = done.stderr.splitlines()
    assert len(lines) == 100
    assert all("the route has no action" in line for line in lines)
    assert more == "19900 more errors are not shown"
    assert last == f"error: {gateway.file} has 20000 errors"
    reloaded = command("reload", "-c", gateway.file)
    assert reloaded.returncode == MALFORMED
    assert len(reloaded.stderr.splitlines()) == 102
    assert more in reloaded.stderr.splitlines()


def test_many_values_of_the_wrong_type_are_reported_without_reparsing(gateway):
    gateway.write(SITE + "".join(NO_PATH.format(number=number) for number in range(200)))
    done = command("check", gateway.file)
    assert done.returncode == MALFORMED
    *lines, more, _ = done.stderr.splitlines()
    assert len(lines) == 50
    assert all("invalid path" in line for line in lines)
    assert "there may be more errors" in more


ROUTES = """
[[sites.routes]]
match = "/a"
respond = "a"

[[sites.routes]]
respond = "b"
"""


def test_reload_reports_changes(start, gateway):
    other = '[[sites]]\nhosts = ["b.test"]\nrespond_to = 0\n{tls}' + ROUTES
    other = other.replace("respond_to = 0\n", "")
    app = '[upstreams.app]\nservers = ["http://127.0.0.1:1"]\n'
    proxied = '[[sites.routes]]\nproxy = "app"\n'
    state = {"server": 'state_dir = "state"', "listen": ("127.0.0.1:0", "http://127.0.0.1:0")}
    gateway.write(app + SITE + ROUTES + proxied + other, **state)
    server = start(gateway.command(), listeners=2)

    def reload() -> list[str]:
        done = command("reload", "-c", gateway.file)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if not line.startswith("warning: ")]

    first, *rest = reload()
    assert first == f"serving 2 sites of {gateway.file}"
    assert rest == [
        "the configuration is unchanged; certificates and other referenced files are reloaded"
    ]

    changed = (
        SITE
        + ROUTES.replace('"b"', '"c"')
        + proxied
        + other.replace("hosts", "http3 = false\nhosts")
    )
    gateway.write(app.replace(":1", ":2") + changed + '[log]\naccess = "off"\n', **state)
    assert reload()[1:] == [
        "changed: site b.test: http3",
        "changed: site localhost, 127.0.0.1: routes 2",
        "changed: upstream app: servers",
        "changed: [log]: access",
    ]
    server.wait_for_lines("^changed: site localhost, 127.0.0.1: routes 2$")

    gateway.write(app + app.replace("app", "more") + SITE + ROUTES + proxied, **state)
    assert reload()[1:] == [
        "removed: b.test",
        "changed: site localhost, 127.0.0.1: routes 2",
        "removed: site b.test",
        "changed: upstream app: servers",
        "added: upstream more",
        "changed: [log]: access",
    ]


def test_log_lines_of_a_running_server_have_a_timestamp(start, gateway):
    gateway.write(SITE + ROUTES, server='state_dir = "state"')
    server = start(gateway.command())
    gateway.file.write_text("[server\n")
    server.popen.send_signal(1)
    server.wait_for_lines("^error: .* is invalid; nothing has changed$")
    gateway.write(
        SITE + '[[sites.routes]]\nproxy = "http://127.0.0.1:1"\n', server='state_dir = "state"'
    )
    server.popen.send_signal(1)
    server.wait_for_lines("^serving 1 site of ", 2)
    with curl.session(gateway.identity.ca) as session:
        assert curl.ask(session, "HTTP/2", f"https://localhost:{server.port}/").status == 502
    server.wait_for_lines("^warning: upstream http://127.0.0.1:1: .*Connection refused")
    for says in (
        "error: .* nothing has changed",
        "serving 1 site of .*",
        "warning: upstream .* refused.*",
    ):
        assert [line for line in server.lines_as_they_came if re.fullmatch(f"{TIME} {says}", line)]


def test_access_log_line_has_the_host(start, gateway, protocol_fetcher):
    gateway.write(SITE + ROUTES + '[log]\naccess = "access.log"\n')
    server = start(gateway.command())
    assert protocol_fetcher.fetch(f"https://localhost:{server.port}/a?b").body == b"a"
    server.terminate()
    assert server.wait() == 0, server.lines
    (line,) = (gateway.folder / "access.log").read_text().splitlines()
    said = rf"{TIME} 127\.0\.0\.1:\d+ HTTP/[123.]+ GET /a\?b 200 1 [\d.]+ms localhost"
    assert re.fullmatch(said, line)
