"""Child processes by ID: CPU time and memory of a whole server, and its end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path


def pinned(core: int, command: Sequence[str]) -> list[str]:
    return ["taskset", "--cpu-list", str(core), *command]


def family(pid: int) -> list[int]:
    """Returns a process and all its descendants."""
    found, fresh = [pid], [pid]
    while fresh:
        children = []
        for parent in fresh:
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{parent}/task").iterdir():
                    children += [int(child) for child in (task / "children").read_text().split()]
        found += children
        fresh = children
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """Returns the CPU time of processes in nanoseconds, including ended threads."""
    total = 0
    for pid in pids:
        # clock_getcpuclockid(3), as defined in the kernel: the complement of the PID, and
        # CPUCLOCK_SCHED.
        with contextlib.suppress(OSError):
            total += time.clock_gettime_ns(((~pid) << 3) | 2)
    return total / 1e9


def memory_kib(pids: Sequence[int]) -> tuple[int, int]:
    """Resident and proportional set size."""
    rss = pss = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            rss += int(re.search(r"^Rss:\s+(\d+) kB", text, re.MULTILINE)[1])
            pss += int(re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)[1])
    return rss, pss


class Server:
    """A running server with all its processes."""

    def __init__(self, command: Sequence[str], core: int, log: Path, environment: dict[str, str]):
        self.log = log
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                pinned(core, command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                cwd=log.parent,
            )

    def pids(self) -> list[int]:
        return family(self.popen.pid)

    def ended(self) -> str | None:
        """Returns why the server ended, with its last lines of output."""
        code = self.popen.poll()
        if code is None:
            return None
        last = self.log.read_text(errors="replace").strip().splitlines()[-3:]
        return f"the server ended with {code}: {' / '.join(last)}"

    def stop(self) -> None:
        pids = self.pids() if self.popen.poll() is None else []
        if pids:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(3)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        for pid in pids[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
