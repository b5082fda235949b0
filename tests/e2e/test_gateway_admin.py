"""The admin API of `pronghorn run`, and the commands that use it."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from harness.admin import UnixConnection, ask
from harness.clients import FETCHERS, curl
from harness.gateway import SITE, Gateway
from harness.server import pronghorn
from harness.waiting import eventually

ROUTED = SITE + '[[sites.routes]]\nrespond = "ANSWER"\n'
TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def over_tcp(identity):
    return next(fetcher for fetcher in FETCHERS if fetcher.name == "curl-h2").trusting(identity.ca)


@pytest.fixture
def over_quic(identity):
    return next(fetcher for fetcher in FETCHERS if fetcher.name == "aioquic-h3").trusting(
        identity.ca
    )


def command(*arguments):
    return subprocess.run([pronghorn(), *arguments], capture_output=True, text=True, timeout=30)


def write(gateway, answer="one", more="", server='state_dir = "state"'):
    gateway.write(ROUTED.replace("ANSWER", answer) + more, server=server)


def test_socket_in_the_state_folder_is_private_and_removed_at_exit(start, gateway):
    write(gateway)
    server = start(gateway.command())
    path = gateway.folder / "state" / "admin.sock"
    found = path.stat()
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600
    status, answer = ask(UnixConnection(path), "GET", "/status")
    assert status == 200
    assert answer["listeners"] == [{"address": f"127.0.0.1:{server.port}", "tls": True}]
    assert answer["sites"][0]["hosts"] == ["localhost", "127.0.0.1"]
    assert json.loads(command("status", "-c", gateway.file).stdout)["pid"] == server.pid
    assert ask(UnixConnection(path), "GET", "/nothing")[0] == 404
    assert ask(UnixConnection(path), "GET", "/reload")[0] == 405
    assert ask(UnixConnection(path), "PUT", "/sites/localhost/http3", "x" * 5000)[0] == 413
    server.terminate()
    assert server.wait() == 0, server.lines
    assert not path.exists()
    gone = command("status", "-c", gateway.file)
    assert gone.returncode == 69
    assert "check that the server runs" in gone.stderr


def test_socket_of_a_running_server_and_other_files_are_not_replaced(start, gateway):
    write(gateway)
    first = start(gateway.command())
    second = start(gateway.command())
    second.wait_for_lines(
        "warning: another server listens at unix:.*admin.sock: no admin API until that server ends; "
    )
    third = start(gateway.command())
    assert json.loads(command("status", "-c", gateway.file).stdout)["pid"] == first.pid
    third.terminate()
    assert third.wait() == 0, third.lines
    assert json.loads(command("status", "-c", gateway.file).stdout)["pid"] == first.pid
    first.terminate()
    assert first.wait() == 0, first.lines
    second.wait_for_lines("admin API at unix:")
    assert json.loads(command("status", "-c", gateway.file).stdout)["pid"] == second.pid
    # A stale socket is replaced.
    second.popen.kill()
    second.wait()
    fourth = start(gateway.command())
    assert json.loads(command("status", "-c", gateway.file).stdout)["pid"] == fourth.pid
    (gateway.folder / "precious").write_text("kept")
    write(gateway, more='[admin]\nlisten = "unix:precious"\n')
    refused = command("run", "-c", gateway.file)
    assert refused.returncode == 73, refused.stderr
    assert (
        len(
            re.findall(
                r"^error: cannot create the admin API socket .*precious",
                refused.stderr,
                re.MULTILINE,
            )
        )
        == 1
    )
    assert (gateway.folder / "precious").read_text() == "kept"


def test_reload_reports_changes_and_errors(start, gateway, protocol_fetcher):
    write(gateway)
    server = start(gateway.command())
    write(
        gateway,
        "two",
        '[[sites]]\nhosts = ["b.example"]\n{tls}\n[[sites.routes]]\nrespond = "b"\n',
        server='state_dir = "state"\nname = "x"',
    )
    done = command("reload", "-c", gateway.file)
    assert done.returncode == 0, done.stderr
    assert "serving 2 sites" in done.stdout
    assert "added: b.example" in done.stdout
    assert "`name` in [server] has changed; restart the server" in done.stdout
    assert protocol_fetcher.fetch(server.origin + "/").body == b"two"

    # An error that only the server can find: a missing certificate.
    gateway.file.write_text(
        gateway.file.read_text()
        .replace("two", "three")
        .replace(str(gateway.identity.cert), "none.pem", 1)
    )
    wrong = command("reload", "-c", gateway.file)
    assert wrong.returncode == 65, wrong.stderr
    assert "none.pem" in wrong.stderr
    assert "nothing has changed" in wrong.stderr
    status, answer = ask(UnixConnection(gateway.folder / "state/admin.sock"), "POST", "/reload")
    assert status == 422
    line = (
        gateway.file.read_text()
        .splitlines()
        .index(gateway.tls.replace(str(gateway.identity.cert), "none.pem"))
        + 1
    )
    assert answer["problems"][0]["line"] == line
    assert "none.pem" in answer["problems"][0]["message"]
    gateway.file.write_text("[server\n")
    assert ask(UnixConnection(gateway.folder / "state/admin.sock"), "POST", "/reload")[0] == 422
    broken = command("reload", "-c", gateway.file)
    assert broken.returncode == 65, broken.stderr
    assert "--admin" in broken.stderr
    assert protocol_fetcher.fetch(server.origin + "/").body == b"two"


def test_reload_works_if_only_the_server_can_read_the_whole_file(start, gateway, monkeypatch):
    """The file names environment variables that only the server has, or is half edited."""
    proxied = SITE + '[[sites.routes]]\nproxy = "app"\n[upstreams.app]\nservers = ["${APP_URL}"]\n'
    gateway.write(proxied, server='state_dir = "state"')
    monkeypatch.setenv("APP_URL", "http://127.0.0.1:1")
    server = start(gateway.command())
    monkeypatch.delenv("APP_URL")
    assert json.loads(command("status", "-c", gateway.file).stdout)["pid"] == server.pid
    done = command("reload", "-c", gateway.file)
    assert done.returncode == 0, done.stderr
    assert "serving 1 site" in done.stdout

    gateway.write(proxied + "[[sites]]\nhosts = [\n", server='state_dir = "state"\nworkerz = 3')
    assert json.loads(command("status", "-c", gateway.file).stdout)["failed_reloads"] == 0
    wrong = command("reload", "-c", gateway.file)
    assert wrong.returncode == 65, wrong.stderr
    assert "nothing has changed" in wrong.stderr
    assert json.loads(command("status", "-c", gateway.file).stdout)["failed_reloads"] == 1
    retried = command("acme", "retry", "localhost", "-c", gateway.file)
    assert retried.returncode == 69, retried.stderr
    assert "localhost" in retried.stderr

    # Without a readable admin address the command cannot continue.
    gateway.write(proxied, server='state_dir = "${STATE_HERE}"')
    lost = command("status", "-c", gateway.file)
    assert lost.returncode == 65, lost.stderr
    assert "environment variable STATE_HERE is not set" in lost.stderr
    assert "--admin" in lost.stderr


def test_hundred_reloads_fail_no_request_and_end_no_connection(
    start, gateway, identity, protocol_fetcher
):
    """Sends requests on a connection that is kept, and on new ones."""
    big = bytes(8 << 20)
    (gateway.folder / "big").write_bytes(big)
    files = '[[sites.routes]]\nmatch = "/big"\nfiles = "."\n'
    write(gateway, "0")
    gateway.file.write_text(
        gateway.file.read_text().replace("[[sites.routes]]", f"{files}[[sites.routes]]")
    )
    text = gateway.file.read_text()
    server = start(gateway.command())
    done = threading.Event()
    ports, answers, failures = set(), [], []

    def kept():
        try:
            with curl.session(identity.ca) as session:
                while not done.is_set():
                    response = curl.ask(session, protocol_fetcher.protocol, server.origin + "/")
                    ports.add(response.local_port)
                    answers.append((response.status, response.body))
                    assert curl.ask(
                        session, protocol_fetcher.protocol, server.origin + "/big"
                    ).size == len(big)
        except Exception as error:
            failures.append(error)

    client = threading.Thread(target=kept)
    client.start()
    try:
        eventually("an answer of the first configuration", lambda: answers or failures)
        for number in range(1, 101):
            gateway.file.write_text(text.replace('respond = "0"', f'respond = "{number}"'))
            assert (
                ask(UnixConnection(gateway.folder / "state/admin.sock"), "POST", "/reload")[0]
                == 200
            )
            if number % 10 == 0:
                assert protocol_fetcher.fetch(server.origin + "/").body == str(number).encode()
        eventually("an answer of the last one", lambda: answers[-1:] == [(200, b"100")] or failures)
    finally:
        done.set()
        client.join(timeout=60)
    assert not failures
    assert not client.is_alive()
    assert {status for status, _ in answers} == {200}
    assert len(ports) == 1
    numbers = [int(body) for _, body in answers]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) > 1


def test_loopback_address_requires_the_token(start, gateway):
    write(gateway, more='[admin]\nlisten = "127.0.0.1:0"\ntoken = "${file:token}"\n')
    (gateway.folder / "token").write_text(TOKEN + "\n")
    server = start(gateway.command())
    port = int(server.wait_for_lines(r"admin API at http://127\.0\.0\.1:(\d+)")[0][1])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for headers in (
        {},
        {"authorization": TOKEN},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Bearer {TOKEN}0"},
    ):
        assert ask(connection, "GET", "/status", headers=headers)[0] == 401, headers
        assert ask(connection, "POST", "/reload", headers=headers)[0] == 401, headers
    assert ask(connection, "GET", "/status", headers={"authorization": f"Bearer {TOKEN}"})[0] == 200
    refused = command("reload", "--admin", f"127.0.0.1:{port}", "--token", "wrong")
    assert refused.returncode == 77
    assert command("reload", "--admin", f"127.0.0.1:{port}", "--token", TOKEN).returncode == 0
    assert not any(TOKEN in line for line in server.lines)


def test_http3_can_be_switched_at_runtime_and_survives_reloads(start, gateway, over_tcp, over_quic):
    write(gateway)
    server = start(gateway.command())
    path = gateway.folder / "state" / "admin.sock"

    def alt_svc():
        return over_tcp.fetch(server.origin + "/").header("alt-svc")

    assert alt_svc() == f'h3=":{server.port}"; ma=86400'
    assert over_quic.fetch(server.origin + "/").status == 200
    status, site = ask(UnixConnection(path), "PUT", "/sites/localhost/http3", "false")
    assert (status, site["http3"], site["http3_configured"]) == (200, False, True)
    assert alt_svc() == "clear"
    with pytest.raises(ConnectionError):
        over_quic.fetch(server.origin + "/")
    reloaded = command("reload", "-c", gateway.file)
    assert reloaded.returncode == 0
    assert "still switched by the admin API" in reloaded.stdout
    assert alt_svc() == "clear"
    assert ask(UnixConnection(path), "DELETE", "/sites/localhost/http3")[1]["http3"] is True
    assert alt_svc() == f'h3=":{server.port}"; ma=86400'
    assert over_quic.fetch(server.origin + "/").status == 200
    assert (
        ask(UnixConnection(path), "PUT", "/sites/127.0.0.1/alt-svc-clear", "true")[1][
            "alt_svc_clear"
        ]
        is True
    )
    assert alt_svc() == "clear"
    assert ask(UnixConnection(path), "PUT", "/sites/localhost/http3", "perhaps")[0] == 400
    assert ask(UnixConnection(path), "PUT", "/sites/other.example/http3", "false")[0] == 404


def test_idle_connections_are_limited_and_do_not_lock_others_out(start, gateway):
    """Opens more silent connections than the limit; closed ones free their slots."""
    write(gateway)
    server = start(gateway.command())
    path = gateway.folder / "state" / "admin.sock"
    idle = []
    for _ in range(20):
        silent = socket.socket(socket.AF_UNIX)
        silent.connect(str(path))
        idle.append(silent)
    for silent in idle:
        silent.close()

    def is_answered() -> bool:
        try:
            return ask(UnixConnection(path), "GET", "/status")[0] == 200
        except (OSError, http.client.HTTPException):
            # The server has not yet seen that the others are closed.
            return False

    assert eventually("it answers again", is_answered)
    assert server.popen.poll() is None


def test_server_without_an_admin_address_is_found_by_its_configuration(start, gateway, tmp_path):
    """Runs two servers, since a user may run several."""
    write(gateway, server="")
    server = start(gateway.command())
    other = Gateway(tmp_path, gateway.identity)
    other.file = tmp_path / "other.toml"
    write(other, server="")
    second = start(other.command())
    for served, pid in ((gateway, server.pid), (other, second.pid)):
        assert json.loads(command("status", "-c", served.file).stdout)["pid"] == pid
    (tmp_path / "link.toml").symlink_to(gateway.file)
    assert json.loads(command("status", "-c", tmp_path / "link.toml").stdout)["pid"] == server.pid
    assert command("reload", "-c", gateway.file).returncode == 0
    (path,) = re.findall(r"admin API at unix:(\S+)", "\n".join(server.lines))
    assert Path(path).parent == Path(os.environ["XDG_STATE_HOME"]) / "pronghorn"
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    server.terminate()
    assert server.wait() == 0, server.lines
    assert not Path(path).exists()
    assert json.loads(command("status", "-c", other.file).stdout)["pid"] == second.pid


def test_server_starts_if_the_default_admin_socket_cannot_be_created(start, gateway, tmp_path):
    """Like a service without a writable folder."""
    write(gateway, server="")
    (tmp_path / "file").write_text("")
    server = start(gateway.command(), env={"XDG_STATE_HOME": str(tmp_path / "file")})
    server.wait_for_lines("warning: admin API unavailable until the next start: ")


def test_disabled_admin_api_stays_disabled(start, gateway):
    write(gateway, more='[admin]\nlisten = "off"\n', server="")
    server = start(gateway.command())
    assert not any("admin API" in line for line in server.lines)
    done = command("status", "-c", gateway.file)
    assert done.returncode == 69
    assert "the admin API is off in this configuration" in done.stderr
