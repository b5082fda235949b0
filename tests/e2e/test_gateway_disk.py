"""Full or unwritable disks, ports in use, lack of descriptors: one clear line each."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.acme_proxy import proxied
from harness.admin import UnixConnection, ask
from harness.clients import FETCHERS
from harness.gateway import SITE
from harness.ordering import NAME, certificates, errors_of, limited, write
from harness.pebble import certificates_of
from harness.server import pronghorn
from harness.small_disk import small_disk, without_override
from harness.waiting import eventually

UNAVAILABLE, OUTPUT, PERMISSION = 69, 73, 77
FULL = r"No space left on device \(os error 28\)"
HERE = SITE + '[[sites.routes]]\nrespond = "here"\n'
STATE = 'state_dir = "state"'


def failed(command) -> tuple[int, str]:
    """Runs a command that must fail with one line; returns its exit code and the line."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=60
    )
    (line,) = done.stderr.splitlines()
    return done.returncode, line


def full_lines(server) -> list[str]:
    return [line for line in server.lines if "No space left" in line or "Read-only" in line]


def test_first_start_without_disk_space_or_permission_is_an_error(gateway, tmp_path):
    gateway.write(HERE, server=STATE)
    with small_disk(tmp_path / "state") as disk:
        disk.fill()
        code, line = failed(disk.command(gateway.command()))
        assert code == OUTPUT
        assert line.startswith(
            f"error: cannot store the secret in {tmp_path}/state/secret: No space left on device"
        )
        assert "`state_dir` in [server]" in line
        disk.make_read_only()
        code, line = failed(disk.command(gateway.command()))
        assert (code, "Read-only file system" in line) == (OUTPUT, True)
    (tmp_path / "state").chmod(0o500)
    code, line = failed(without_override(gateway.command()))
    assert (code, "Permission denied" in line, "this user can write" in line) == (
        PERMISSION,
        True,
        True,
    )


def test_development_certificate_that_cannot_be_stored_is_an_error(gateway, tmp_path):
    gateway.write(HERE.replace("{tls}", 'tls = "development"'))
    folder = f"cannot store a certificate in {tmp_path}/data/pronghorn: "
    at = ["env", f"XDG_DATA_HOME={tmp_path}/data"]
    serve = [*at, pronghorn(), "serve", tmp_path, "--listen", "127.0.0.1:0"]
    with small_disk(tmp_path / "data") as disk:
        disk.fill()
        code, line = failed(disk.command(serve))
        assert (code, line) == (
            OUTPUT,
            f"error: {folder}No space left on device (os error 28); give --cert and --key",
        )
        run = [str(part) for part in disk.command([*at, *gateway.command()])]
        done = subprocess.run(run, capture_output=True, text=True, timeout=60)
        said, _ = done.stderr.splitlines()
        assert said.endswith(
            f"{folder}No space left on device (os error 28); name files with a certificate and its key"
        )
        assert not list(disk.inside.glob("pronghorn/*"))
    (tmp_path / "data").chmod(0o500)
    code, line = failed(without_override(serve))
    assert (code, folder in line, "give --cert and --key" in line) == (PERMISSION, True, True)


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_restart_on_a_full_or_read_only_disk_uses_stored_state(
    start, gateway, pebble, tmp_path, fault
):
    pebble.start()
    write(gateway, pebble)
    with small_disk(tmp_path / "state") as disk:
        server = start(disk.command(gateway.command()), listeners=2)
        server.wait_for_lines("has a certificate")
        before = certificates(disk.inside / "admin.sock")[0]["valid_until"]
        server.kill()
        if fault == "full":
            disk.fill(names=True)
        else:
            disk.make_read_only()
        kept = {
            file: file.read_bytes()
            for file in disk.inside.glob("acme/*/**/*.*")
            if file.suffix != ".lock"
        }
        assert len(kept) == 2
        again = start(disk.command(gateway.command()), listeners=2)
        again.wait_for_lines("serving 1 site ")
        again.wait_for_lines("warning: admin API unavailable until the next start: .*admin.sock: ")
        again.wait_for_lines("warning: cannot renew certificates: .*/certificates: ")
        assert len(full_lines(again)) == 2
        with socket.create_connection((pebble.address, 8080), timeout=20):
            pass
        assert {file: file.read_bytes() for file in kept} == kept
        again.terminate()
        assert again.wait() == 0, again.lines
        if fault == "full":
            disk.free()
            start(disk.command(gateway.command()), listeners=2)
            assert certificates(disk.inside / "admin.sock")[0]["valid_until"] == before
    assert pebble.orders == 1


def test_acme_account_is_not_created_if_it_cannot_be_stored(start, gateway, pebble, tmp_path):
    write(gateway, pebble)
    with small_disk(tmp_path / "state") as disk:
        server = start(disk.command(gateway.command()), listeners=2)
        server.wait_for_lines("request to the authority failed")
        disk.fill()
        pebble.start()
        said = f"error: no certificate for {NAME}: cannot store the account: "
        server.wait_for_lines(rf"{said}.*{FULL}.*; next attempt in \d+s$", seconds=60)
        assert pebble.accounts == 0
        disk.free()
        server.wait_for_lines("has a certificate", seconds=90)
        assert pebble.accounts == 1


def test_certificate_that_cannot_be_stored_is_served_and_stored_later(
    start, gateway, pebble, tmp_path
):
    pebble.start()
    with proxied(pebble) as proxy, small_disk(tmp_path / "state") as disk:
        write(gateway, pebble)
        server = start(disk.command(gateway.command()), listeners=2)
        server.wait_for_lines("has a certificate")
        disk.fill()
        refusals = iter([limited("5")])
        proxy.answer = lambda _, path: next(refusals, None) if path == "/order-plz" else None
        other = "two.pronghorn.test"
        write(gateway, pebble, (NAME, other))
        server.popen.send_signal(1)
        # The same line says what was rejected.
        server.wait_for_lines(
            rf"too many orders .* as the authority asked, or after a restart, because .*\.refused: {FULL}$"
        )
        server.wait_for_lines(
            rf"error: cannot store the certificate of {other} for the next start: .*\.pem: {FULL}"
        )
        lines = full_lines(server)
        assert len(lines) == 2
        assert certificates(disk.inside / "admin.sock")[1]["valid_until"]
        assert certificates_of(disk.inside).keys() == {NAME}
        disk.free()
        server.wait_for_lines(f"the certificate of {other} is now stored for the next start")
        assert full_lines(server) == lines
        server.kill()
        assert not list(disk.inside.glob("acme/*/**/.writing-*"))
        again = start(disk.command(gateway.command()), listeners=2)
        assert all(one["valid_until"] for one in certificates(disk.inside / "admin.sock"))
        assert (pebble.orders, errors_of(again)) == (2, [])


def test_qlog_on_a_full_disk_is_logged_once_until_space_is_free(start, gateway, tmp_path, identity):
    fetcher = next(fetcher for fetcher in FETCHERS if fetcher.name == "aioquic-h3").trusting(
        identity.ca
    )
    gateway.write(HERE + '[log]\nqlog = { folder = "qlog" }\n')
    with small_disk(tmp_path / "qlog") as disk:
        server = start(disk.command(gateway.command()))

        def fetch() -> None:
            assert fetcher.fetch(server.origin + "/").body == b"here"

        fetch()
        (first,) = disk.inside.glob("*.sqlog")
        written = eventually(
            "the connection has ended",
            lambda: b"connection_closed" in first.read_bytes() and first.read_bytes(),
        )
        disk.fill()
        for _ in range(5):
            fetch()
        server.wait_for_lines(
            rf"warning: qlog: cannot write to .*_server\.sqlog: {FULL}; connections have no file, or part"
        )
        # Its last events may follow the close.
        assert first.read_bytes().startswith(written)
        assert len(full_lines(server)) == 1, server.lines
        disk.free()
        fetch()
        # The last page of the first file may have had space for part of another one.
        (told,) = server.wait_for_lines(
            r"qlog: files can be written again; (\d) connections have none, or part of one"
        )
        assert 1 <= int(told[1]) <= 5
        server.terminate()
        assert server.wait() == 0, server.lines
        assert len(full_lines(server)) == 1
        server.wait_for_lines(rf"qlog: {told[1]} connections have no file or an incomplete one")


def test_qlog_to_an_unwritable_folder_is_logged_once(start, gateway, tmp_path, identity):
    fetcher = next(fetcher for fetcher in FETCHERS if fetcher.name == "aioquic-h3").trusting(
        identity.ca
    )
    (tmp_path / "qlog").mkdir(mode=0o500)
    gateway.write(HERE + '[log]\nqlog = { folder = "qlog" }\n')
    server = start(without_override(gateway.command()))
    for _ in range(3):
        assert fetcher.fetch(server.origin + "/").body == b"here"
    server.wait_for_lines("warning: qlog: cannot write to .*/qlog: Permission denied")
    server.terminate()
    assert server.wait() == 0, server.lines
    assert sum("Permission denied" in line for line in server.lines) == 1


UNTIDY = '[server]\nlisten   =  ["127.0.0.1:0"]  # here\n'


def test_fmt_leaves_the_file_unchanged_if_it_cannot_write(tmp_path):
    with small_disk(tmp_path / "etc") as disk:
        file = disk.inside / "pronghorn.toml"
        file.write_text(UNTIDY)
        before = sorted(disk.inside.iterdir())
        disk.fill()
        command = [pronghorn(), "fmt", tmp_path / "etc/pronghorn.toml"]
        code, line = failed(disk.command(command))
        assert code == OUTPUT
        assert line.startswith(
            f"error: {tmp_path}/etc/pronghorn.toml is unchanged: No space left on device"
        )
        assert line.endswith("free disk space: the file is written as a new copy")
        disk.free()
        assert (file.read_text(), sorted(disk.inside.iterdir())) == (UNTIDY, before)
        disk.make_read_only()
        code, line = failed(disk.command(command))
        assert (code, "Read-only file system" in line) == (OUTPUT, True)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "pronghorn.toml").write_text(UNTIDY)
    folder.chmod(0o500)
    code, line = failed(without_override([pronghorn(), "fmt", folder / "pronghorn.toml"]))
    assert (code, "Permission denied" in line, "make its folder writable" in line) == (
        PERMISSION,
        True,
        True,
    )
    (folder / "pronghorn.toml").chmod(0)
    code, line = failed(without_override([pronghorn(), "fmt", folder / "pronghorn.toml"]))
    assert (code, "make it readable for this user" in line) == (PERMISSION, True)


def test_fmt_preserves_symlinks_owner_and_mode(tmp_path):
    file, link = tmp_path / "file.toml", tmp_path / "link.toml"
    file.write_text(UNTIDY)
    file.chmod(0o640)
    link.symlink_to("file.toml")
    if os.geteuid() == 0:
        os.chown(file, 12_345, 54_321)
    before = file.stat()
    subprocess.run([pronghorn(), "fmt", link], check=True, timeout=60)
    assert link.is_symlink()
    assert file.read_text() == '[server]\nlisten = ["127.0.0.1:0"] # here\n'
    after = file.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )


def test_port_in_use_is_an_error(gateway):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        gateway.write(HERE, listen=(address,))
        code, line = failed(gateway.command())
        hint = "stop the process that uses the port, or choose another with `listen` in [server]"
        said = (
            f"error: cannot listen on {address} (TCP): Address already in use (os error 98); {hint}"
        )
        assert (code, line) == (UNAVAILABLE, said)
        gateway.write(HERE + f'[admin]\nlisten = "{address}"\ntoken = "{"t" * 32}"\n')
        code, line = failed(gateway.command())
        assert (
            code,
            f"cannot listen on {address} for the admin API: Address already in use" in line,
        ) == (
            UNAVAILABLE,
            True,
        )


def test_privileged_port_is_an_error(gateway):
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 80:
        pytest.skip("unprivileged users may bind ports below 1024 here")
    gateway.write(HERE, listen=("127.99.0.1:80",))
    command = gateway.command()
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-all", *command]
    code, line = failed(command)
    assert (code, "(TCP): Permission denied" in line, "CAP_NET_BIND_SERVICE" in line) == (
        PERMISSION,
        True,
        True,
    )


def test_lack_of_descriptors_is_logged_once_per_component(start, gateway, up, identity):
    fetcher = next(fetcher for fetcher in FETCHERS if fetcher.name == "aioquic-h3").trusting(
        identity.ca
    )
    routes = '[[sites.routes]]\nmatch = { path = "/here" }\nrespond = "here"\n'
    routes += f'[[sites.routes]]\nproxy = {{ servers = ["{up.address}"] }}\n'
    # The connections below, which are silent, keep their descriptors on a busy machine too.
    gateway.write(SITE + routes + '[limits]\nhandshake_timeout = "10m"\n', server=STATE)
    server = start(["prlimit", "--nofile=64:64", "--", *gateway.command()])
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection((server.host, server.port)))
        server.wait_for_lines("cannot accept TCP connections, they wait: out of file descriptors")
        # A QUIC connection uses no descriptor, but one to the upstream does.
        assert [fetcher.fetch(server.origin + "/").status for _ in range(3)] == [502] * 3
        server.popen.send_signal(1)
        server.wait_for_lines(r"Too many open files \(os error 24\)", 2)
        assert fetcher.fetch(server.origin + "/here").body == b"here"
    eventually("descriptors are free", lambda: fetcher.fetch(server.origin + "/").status == 200)
    server.popen.send_signal(1)
    server.wait_for_lines("nothing has changed|is as it was|reloaded")
    assert ask(UnixConnection(gateway.folder / "state/admin.sock"), "GET", "/status")[0] == 200
