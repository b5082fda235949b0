"""PHP-FPM from Debian, and the small application that it runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .gateway import SITE
from .process import Process
from .server import REPOSITORY
from .waiting import eventually

CONFIGURATION = """
[global]
daemonize = no
error_log = /dev/stderr
log_level = notice
[www]
listen = {socket}
user = root
group = root
pm = static
pm.max_children = {children}
security.limit_extensions = .php
ping.path = /ping
pm.status_path = /status
"""


def program() -> str:
    """Returns the program; Debian's name contains the version."""
    for name in (
        "php-fpm",
        *(path.name for path in sorted(Path("/usr/sbin").glob("php-fpm*"), reverse=True)),
    ):
        if found := shutil.which(name, path="/usr/sbin:/usr/bin"):
            return found
    raise FileNotFoundError("php-fpm is not installed: run scripts/setup")


@contextmanager
def php_fpm(folder: Path, *, children: int = 4) -> Iterator[Path]:
    """Starts PHP-FPM; yields its socket."""
    folder.mkdir(exist_ok=True)
    socket, configuration = folder / "fpm.sock", folder / "fpm.conf"
    configuration.write_text(CONFIGURATION.format(socket=socket, children=children))
    # As root, because the tests may run as root; without the machine's php.ini.
    flags = [
        "--nodaemonize",
        "--allow-to-run-as-root",
        "--no-php-ini",
        "--define",
        "extension=posix",
    ]
    process = Process([program(), *flags, "--fpm-config", configuration])
    try:
        process.wait_for_lines("ready to handle connections")
        eventually("the socket of PHP-FPM", socket.exists)
        yield socket
    finally:
        # A stopped master ends its children; those of a killed one would remain.
        process.terminate()
        process.wait()
        process.stop()


def application(folder: Path) -> Path:
    """Makes a folder with the application among other files."""
    www = folder / "www"
    (www / "admin").mkdir(parents=True)
    (folder / "sessions").mkdir()
    shutil.copy(REPOSITORY / "tests" / "applications" / "index.php", www / "index.php")
    shutil.copy(REPOSITORY / "tests" / "applications" / "index.php", www / "admin" / "index.php")
    (www / "style.css").write_text("p { color: red }\n")
    (www / "secret.php.bak").write_text("<?php $password = 'x';")
    (www / "picture.jpg").write_text("<?php echo 'a picture that was run';")
    return www


def served(
    start, gateway, www: Path, server: str, more: str = "", route: str = "", settings: str = ""
):
    """Starts a gateway with a route for the folder.

    `more` goes into the table `php`, `settings` into `[server]`.
    """
    php = f'php = {{ root = "{www}", server = {server if server.startswith("{") else repr(server)}{more} }}'
    gateway.write(SITE + f"[[sites.routes]]\n{route}\n{php}\n", server=settings)
    return start(gateway.command())
