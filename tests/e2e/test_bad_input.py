"""Operator errors: one line that says what to do, a documented exit code, no partially written
files.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from harness.certificates import as_version_1, pem, sign
from harness.clients.raw_h1 import RawH1
from harness.server import pronghorn
from harness.unprivileged import copied, open_folder, without_rights
from harness.waiting import eventually

USAGE = 2
DATA_MALFORMED = 65
INPUT_MISSING = 66
UNKNOWN_HOST = 68
UNAVAILABLE = 69
NO_PERMISSION = 77


@pytest.fixture
def refuse(tmp_path):
    """Runs `pronghorn serve`, which must exit by itself; returns its exit code and its one line."""
    data_home = tmp_path / "data-home"

    def run(*arguments, code: int, mentions: str, prefix=()) -> str:
        command = [str(part) for part in [*prefix, pronghorn(), "serve", *arguments]]
        environment = {**os.environ, "XDG_DATA_HOME": str(data_home), "HOME": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        assert done.stdout == ""
        lines = done.stderr.splitlines()
        assert (done.returncode, len(lines)) == (code, 1), done.stderr
        assert re.match(r"error: \S", lines[0])
        assert mentions in lines[0]
        # The line must hold a hint, beyond the operating system's error message.
        assert len(lines[0].partition(mentions)[2].strip()) > 3
        assert "panicked" not in lines[0]
        return lines[0]

    yield run
    assert not data_home.exists(), "a refused start wrote to the data folder"


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_bytes(b"page")
    return folder


def local(identity, **paths) -> list:
    """Returns the usual flags, with some of the files replaced."""
    cert, key = paths.get("cert", identity.cert), paths.get("key", identity.key)
    return ["--listen", "127.0.0.1:0", "--cert", cert, "--key", key]


def test_missing_folder_is_an_error(refuse, identity, tmp_path):
    refuse(tmp_path / "nowhere", *local(identity), code=INPUT_MISSING, mentions="nowhere")


def test_file_as_folder_is_an_error(refuse, identity, root):
    refuse(root / "index.html", *local(identity), code=INPUT_MISSING, mentions="index.html")


def test_missing_certificate_is_an_error(refuse, identity, root, tmp_path):
    refuse(
        root,
        *local(identity, cert=tmp_path / "no-cert.pem"),
        code=INPUT_MISSING,
        mentions="no-cert.pem",
    )


def test_missing_key_is_an_error(refuse, identity, root, tmp_path):
    refuse(
        root,
        *local(identity, key=tmp_path / "no-key.pem"),
        code=INPUT_MISSING,
        mentions="no-key.pem",
    )


def test_folder_as_certificate_is_an_error(refuse, identity, root):
    refuse(root, *local(identity, cert=root), code=INPUT_MISSING, mentions=root.name)


def test_file_without_a_certificate_is_an_error(refuse, identity, root, tmp_path):
    (tmp_path / "empty.pem").write_bytes(b"")
    refuse(
        root,
        *local(identity, cert=tmp_path / "empty.pem"),
        code=DATA_MALFORMED,
        mentions="empty.pem",
    )


def test_random_bytes_as_certificate_are_an_error(refuse, identity, root, tmp_path):
    broken = tmp_path / "broken.pem"
    broken.write_bytes(b"-----BEGIN CERTIFICATE-----\nAAECAwQFBgc=\n-----END CERTIFICATE-----\n")
    refuse(root, *local(identity, cert=broken), code=DATA_MALFORMED, mentions="broken.pem")


def test_file_without_a_key_is_an_error(refuse, identity, root):
    refuse(root, *local(identity, key=identity.cert), code=DATA_MALFORMED, mentions="cert.pem")


def test_key_of_another_certificate_is_an_error(refuse, identity, root, tmp_path):
    other = tmp_path / "other-key.pem"
    key = ec.generate_private_key(ec.SECP256R1())
    other.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    refuse(root, *local(identity, key=other), code=DATA_MALFORMED, mentions="other-key.pem")


def test_certificate_without_key_is_a_usage_error(refuse, identity, root):
    run = [pronghorn(), "serve", root, "--listen", "127.0.0.1:0", "--cert", identity.cert]
    done = subprocess.run([str(part) for part in run], capture_output=True, text=True, timeout=60)
    assert done.returncode == USAGE
    assert "--key" in done.stderr
    assert done.stderr.startswith("error: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--listen", "nonsense"],
        ["--listen", "127.0.0.1:99999"],
        ["--listen", "ftp://127.0.0.1:0"],
        ["--grace", "soon"],
        ["--grace", "-1"],
        ["--idle-timeout", "never"],
        ["--no-such-flag"],
        ["--congestion", "vegas"],
        ["--udp-buffer", "much"],
        ["--initial-window", "0"],
    ],
    ids=" ".join,
)
def test_invalid_flag_value_is_a_usage_error(root, arguments):
    command = [str(pronghorn()), "serve", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == USAGE, done.stderr
    assert done.stderr.startswith("error: ")
    assert arguments[-1] in done.stderr


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["tcp", "udp"])
def test_port_in_use_is_an_error(refuse, identity, root, kind):
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        listen = ["--listen", address, *local(identity)[2:]]
        refuse(root, *listen, code=UNAVAILABLE, mentions=address)


def test_port_of_another_pronghorn_is_an_error(refuse, server, identity, root):
    # Workers share a port with SO_REUSEPORT; a second server must not join them.
    address = f"127.0.0.1:{server.port}"
    refuse(root, "--listen", address, *local(identity)[2:], code=UNAVAILABLE, mentions=address)


def test_address_of_another_machine_is_an_error(refuse, identity, root):
    # A documentation address, RFC 5737: no machine has it.
    refuse(
        root,
        "--listen",
        "192.0.2.1:0",
        *local(identity)[2:],
        code=UNAVAILABLE,
        mentions="192.0.2.1",
    )


def test_unknown_host_name_is_an_error(refuse, identity, root):
    # RFC 6761: names under .invalid never resolve.
    flags = ["--listen", "nosuchhost.invalid:0", *local(identity)[2:]]
    refuse(root, *flags, code=UNKNOWN_HOST, mentions="nosuchhost.invalid")


@pytest.fixture
def folder():
    """Yields a folder that an unprivileged user can reach."""
    with open_folder() as folder:
        yield folder


@pytest.mark.parametrize("unreadable", ["cert", "key"])
def test_unreadable_certificate_or_key_is_an_error(identity, folder, unreadable):
    files = {}
    for name in ("cert", "key"):
        files[name] = folder / f"{name}.pem"
        files[name].write_bytes(getattr(identity, name).read_bytes())
        files[name].chmod(0o644)
    files[unreadable].chmod(0)
    done = serve_without_rights(folder, *local(identity, **files))
    assert done.returncode == NO_PERMISSION, done.stderr
    assert re.fullmatch(rf"error: [^\n]*{unreadable}\.pem[^\n]+\n", done.stderr)


def test_privileged_port_is_an_error(identity, folder):
    limit = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if limit <= 1:
        pytest.skip("unprivileged users may bind every port on this machine")
    for name in ("cert", "key"):
        (folder / f"{name}.pem").write_bytes(getattr(identity, name).read_bytes())
    flags = ["--listen", "127.0.0.1:1", "--cert", folder / "cert.pem", "--key", folder / "key.pem"]
    done = serve_without_rights(folder, *flags)
    assert done.returncode == NO_PERMISSION, done.stderr
    assert re.fullmatch(r"error: [^\n]*127\.0\.0\.1:1\b[^\n]+\n", done.stderr)


def serve_without_rights(folder: Path, *arguments) -> subprocess.CompletedProcess[str]:
    command = without_rights([copied(pronghorn(), folder), "serve", folder, *arguments])
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_full_stderr_does_not_stop_the_server(identity, root):
    # /dev/full rejects each write, like a full disk below a log file.
    with Path("/dev/full").open("wb") as full:
        command = [pronghorn(), "serve", root, *local(identity)]
        served = subprocess.Popen([str(part) for part in command], stderr=full)
        try:
            # It cannot report the port on which it listens.
            port = eventually("a listening socket", lambda: listening_port(served.pid))

            def answer():
                try:
                    with RawH1(f"https://127.0.0.1:{port}", identity.ca) as client:
                        return client.fetch("/").status
                except OSError:
                    return None

            assert eventually("an answer", answer) == 200
            assert eventually("another one", answer) == 200
        finally:
            served.kill()
            served.wait()


def listening_port(pid: int) -> int | None:
    """Reads from the kernel the TCP port that a process listens on at 127.0.0.1."""
    try:
        sockets = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir()}
    except FileNotFoundError:
        # The descriptor was closed in the meantime.
        return None
    listening = "0A"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        # proc_pid_net(5): the local address, the state and the inode are fields 2, 4 and 10.
        fields = line.split()
        if fields[3] == listening and f"socket:[{fields[9]}]" in sockets:
            return int(fields[1].rpartition(":")[2], 16)
    return None


def test_forbidden_congestion_control_is_an_error(folder):
    kernel = Path("/proc/sys/net/ipv4")
    allowed = (kernel / "tcp_allowed_congestion_control").read_text().split()
    available = (kernel / "tcp_available_congestion_control").read_text().split()
    forbidden = [name for name in ("cubic", "bbr") if name in available and name not in allowed]
    if not forbidden:
        pytest.skip("every user may choose each congestion control on this system")
    arguments = ["--listen", "http://127.0.0.1:0", "--congestion", forbidden[0]]
    done = serve_without_rights(folder, *arguments)
    assert done.returncode == NO_PERMISSION, done.stderr
    assert re.fullmatch(
        rf"error: [^\n]*{forbidden[0]}[^\n]*tcp_allowed_congestion_control[^\n]*\n", done.stderr
    )


def test_missing_certificate_and_missing_key_are_reported_together(
    refuse, root, identity, tmp_path
):
    paths = {"cert": tmp_path / "no-cert.pem", "key": tmp_path / "no-key.pem"}
    says = refuse(root, *local(identity, **paths), code=INPUT_MISSING, mentions="no-key.pem")
    assert "no-cert.pem" in says
    assert says.count("check the path") == 1


def test_key_too_small_lists_the_accepted_ones(refuse, root, identity, tmp_path):
    small = tmp_path / "small.pem"
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    small.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    says = refuse(
        root,
        *local(identity, key=small),
        code=DATA_MALFORMED,
        mentions="small.pem: unsupported key type or size",
    )
    assert "RSA of 2048" in says
    assert "belongs to the certificate" not in says


@pytest.mark.parametrize(
    "form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL], ids=["PKCS 8", "OpenSSL"]
)
def test_encrypted_key_is_reported_as_encrypted(refuse, root, identity, tmp_path, form):
    key = load_pem_private_key(identity.key.read_bytes(), None)
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(key.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"secret")))
    refuse(
        root,
        *local(identity, key=encrypted),
        code=DATA_MALFORMED,
        mentions="encrypted.pem: the key is encrypted with a passphrase",
    )


def test_certificate_of_version_1_must_be_reissued(refuse, root, identity, tmp_path):
    key = load_pem_private_key(identity.key.read_bytes(), None)
    old = tmp_path / "old.pem"
    old.write_bytes(pem(as_version_1(sign("localhost", key, "localhost", key, is_ca=False), key)))
    mentions = "old.pem: the certificate is not X.509 version 3"
    refuse(root, *local(identity, cert=old), code=DATA_MALFORMED, mentions=mentions)
