"""The static program runs in an environment without any other file."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from harness.clients import FETCHERS
from harness.gateway import seen
from harness.server import TARGET, program

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def static() -> Path:
    return program("PRONGHORN_STATIC", TARGET / "static" / "pronghorn", "make static")


def test_program_needs_no_shared_library(static):
    headers = subprocess.run(
        ["readelf", "--program-headers", "--dynamic", static], capture_output=True, text=True
    )
    assert headers.returncode == 0
    assert "INTERP" not in headers.stdout
    assert "(NEEDED)" not in headers.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot and mknod need root")
def test_program_serves_pages_and_resolves_upstreams_in_an_empty_root(
    start, gateway, up, identity, static
):
    """The root folder has only the program, a certificate, a page, a hosts file, and a random
    device.
    """
    root = gateway.folder / "root"
    for folder in ("etc", "site"):
        (root / folder).mkdir(parents=True)
    shutil.copy(static, root / "pronghorn")
    shutil.copy(identity.cert, root / "cert.pem")
    shutil.copy(identity.key, root / "key.pem")
    (root / "site/index.html").write_text("a page")
    (root / "etc/hosts").write_text("127.0.0.1 upstream.test\n")
    (root / "pronghorn.toml").write_text(
        '[server]\nlisten = ["127.0.0.1:0"]\nworkers = 1\nstate_dir = "/state"\n'
        '[[sites]]\nhosts = ["localhost", "127.0.0.1"]\ntls = { cert = "cert.pem", key = "key.pem" }\n'
        f'[[sites.routes]]\nmatch = "/app/*"\nproxy = "http://upstream.test:{up.server_port}"\n'
        '[[sites.routes]]\nfiles = "/site"\n'
    )
    # The statically linked program reads /dev/urandom: part of it does not find the system call.
    (root / "dev").mkdir()
    os.mknod(root / "dev/urandom", 0o666 | stat.S_IFCHR, os.makedev(1, 9))
    (root / "dev/random").symlink_to("urandom")
    server = start(["unshare", f"--root={root}", "/pronghorn", "run", "-c", "/pronghorn.toml"])
    for name in ("curl-h1", "curl-h2", "aioquic-h3"):
        fetcher = next(fetcher for fetcher in FETCHERS if fetcher.name == name).trusting(
            identity.ca
        )
        assert fetcher.fetch(server.origin + "/").body == b"a page"
        assert seen(fetcher.fetch(server.origin + "/app/x"))["path"] == "/app/x"
    server.terminate()
    assert server.wait() == 0, server.lines
