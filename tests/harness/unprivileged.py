"""A user without privileges, and a folder that it can reach."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

USER = 65_534


@contextmanager
def open_folder() -> Iterator[Path]:
    """Yields a folder that every user can reach.

    Pytest's own folders do not work: each run that starts here makes them private.
    """
    with tempfile.TemporaryDirectory(prefix="pronghorn-open-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def copied(program: Path, folder: Path) -> Path:
    """Copies a program so that every user can run it."""
    copy = folder / program.name
    shutil.copyfile(program, copy)
    copy.chmod(0o755)
    return copy


def without_rights(command: Sequence[str | Path]) -> list[str]:
    """Returns the command run as a user who can neither read every file nor bind low ports, whoever
    runs the tests.
    """
    plain = [str(part) for part in command]
    if os.geteuid() != 0:
        return plain
    user = [
        f"--reuid={USER}",
        f"--regid={USER}",
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
    ]
    return ["setpriv", *user, *plain]
