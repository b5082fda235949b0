"""Clients and upstreams that stall until they are released, through tests/clients/quic-go/stalled."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from .process import end_by_input
from .server import stalled
from .waiting import DEADLINE_SECONDS


class Released:
    """A process that goes on once it gets a line."""

    def __init__(self, *flags: str | Path | int):
        command = [str(part) for part in (stalled(), *flags)]
        self.popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *_exception) -> None:
        end_by_input(self.popen)

    def release(self) -> None:
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()


class StalledUpstream(Released):
    """Reads no upload before it is released, and answers with its hash."""

    def __init__(self):
        super().__init__("-upstream")
        self.address = json.loads(self.popen.stdout.readline())["address"]

    def __exit__(self, *_exception) -> None:
        self.popen.kill()
        self.popen.wait()


class StalledClient(Released):
    """Reads no download before it is released, and compares all content."""

    def __init__(self, version: str, url: str, ca: Path, **flags: int):
        more = [
            part for name, value in flags.items() for part in (f"-{name.replace('_', '-')}", value)
        ]
        super().__init__("-http", version, "-url", url, "-ca", ca, *more)
        self.progress: dict[str, int] = {}
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.popen.stdout:
            with self._changed:
                self.progress = json.loads(line)
                self._changed.notify_all()

    def wait_until(
        self, reached: Callable[[dict[str, int]], bool], seconds: float = DEADLINE_SECONDS
    ) -> None:
        with self._changed:
            found = self._changed.wait_for(
                lambda: self.progress and reached(self.progress), seconds
            )
            assert found, f"only {self.progress} after {seconds} s"

    def finish(self, seconds: float) -> dict[str, int]:
        """Waits for the end, and returns the last progress."""
        assert self.popen.wait(seconds) == 0, self.progress
        self._reader.join(seconds)
        return self.progress
