"""A folder on a disk of the test's own, which can be full or read-only, and is removed after the
test.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .process import Process

INODES = 128


class SmallDisk:
    """A folder in a mount namespace, which other commands must enter."""

    def __init__(self, folder: Path, size_bytes: int):
        folder.mkdir(exist_ok=True)
        self.folder = folder
        mount = f"mount -t tmpfs -o size={size_bytes},nr_inodes={INODES} tmpfs {shlex.quote(str(folder))}"
        script = f"{mount} && echo mounted >&2 && exec sleep infinity"
        self.holder = Process(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
        )
        self.holder.wait_for_lines("mounted")

    def command(self, command: Sequence[str | Path]) -> list[str | Path]:
        """Returns the command run with the folder on this disk."""
        here = f"--wd={os.getcwd()}"
        return [
            "nsenter",
            f"--target={self.holder.pid}",
            "--user",
            "--mount",
            "--preserve-credentials",
            here,
            *command,
        ]

    @property
    def inside(self) -> Path:
        """Returns the folder's path from outside the namespace."""
        return Path(f"/proc/{self.holder.pid}/root{self.folder}")

    def fill(self, *, names: bool = False) -> None:
        """Leaves no free byte, and with `names`, no free inode either."""
        with (self.inside / "ballast").open("ab", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(4_096))
        with suppress(OSError):
            for number in range(INODES if names else 0):
                (self.inside / f"ballast-{number}").touch()

    def free(self) -> None:
        for ballast in self.inside.glob("ballast*"):
            ballast.unlink()

    def make_read_only(self) -> None:
        subprocess.run(
            self.command(["mount", "-o", "remount,ro", self.folder]), check=True, timeout=30
        )


@contextmanager
def small_disk(folder: Path, size_bytes: int = 1 << 20) -> Iterator[SmallDisk]:
    disk = SmallDisk(folder, size_bytes)
    try:
        yield disk
    finally:
        disk.holder.stop()


def without_override(command: Sequence[str | Path]) -> list[str | Path]:
    """Returns the command run with file permissions in force, even for root."""
    if os.geteuid() != 0:
        return list(command)
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", *command]
