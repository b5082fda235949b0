"""A child process whose output lines can be waited for, and its resource use from the kernel."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from .waiting import DEADLINE_SECONDS, eventually

CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def end_by_input(popen: subprocess.Popen) -> None:
    """Closes the input of a command that ends with it, and kills the command if it does not end."""
    with contextlib.suppress(BrokenPipeError):
        popen.stdin.close()
    try:
        popen.wait(DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()
    popen.stdout.close()


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (?!\S+:\d+ HTTP/)")
"""Timestamp before a running server's messages. In lines of access logs an address follows it."""


class Process:
    """A command that runs until the test stops it; its stderr is stored as lines while it runs,
    without timestamps.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ):
        self.command = [str(part) for part in command]
        self.lines: list[str] = []
        self.lines_as_they_came: list[str] = []
        self._arrived = threading.Condition()
        self._ended = False
        self.popen = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else {**os.environ, **env},
            cwd=cwd,
        )
        self._reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._reader.start()
        self.stdout = b""
        self._stdout_reader = threading.Thread(target=self._read_stdout, daemon=True)
        self._stdout_reader.start()

    def _read_stderr(self) -> None:
        for line in self.popen.stderr:
            with self._arrived:
                text = line.decode(errors="replace").rstrip("\n")
                self.lines_as_they_came.append(text)
                self.lines.append(TIME.sub("", text, count=1) if TIME.match(text) else text)
                self._arrived.notify_all()
        with self._arrived:
            self._ended = True
            self._arrived.notify_all()

    def _read_stdout(self) -> None:
        self.stdout = self.popen.stdout.read()

    @property
    def pid(self) -> int:
        return self.popen.pid

    def wait_for_lines(
        self, pattern: str, count: int = 1, *, seconds: float = DEADLINE_SECONDS
    ) -> list[re.Match[str]]:
        """Returns the first `count` lines of stderr that match the pattern, received before the
        call or later.
        """
        deadline = time.monotonic() + seconds
        with self._arrived:
            while True:
                found = [match for line in self.lines if (match := re.search(pattern, line))]
                if len(found) >= count:
                    return found[:count]
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    why = "it ended" if self._ended else f"{seconds} s passed"
                    raise AssertionError(
                        f"{why} with {len(found)} of {count} lines like {pattern!r} from {self.command}; stderr:\n"
                        + "\n".join(self.lines)
                    )
                self._arrived.wait(left)

    def terminate(self) -> None:
        self.popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it like a crash: SIGKILL, and waits until the kernel has closed its sockets."""
        self.popen.kill()
        self.wait()

    def wait(self, seconds: float = DEADLINE_SECONDS) -> int:
        code = self.popen.wait(seconds)
        self._reader.join(seconds)
        self._stdout_reader.join(seconds)
        return code

    def stop(self) -> None:
        """For cleanup: ends the process in any state."""
        if self.popen.poll() is None:
            self.kill()
        self.popen.stderr.close()
        self.popen.stdout.close()

    def cpu_seconds(self) -> float:
        """Returns the CPU time of all threads so far, in user and kernel mode."""
        # Fields 14 and 15 of proc(5); the second field is a name that may contain spaces and
        # brackets.
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / CLOCK_TICKS_PER_SECOND

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024

    def forget_peak(self) -> int:
        """Resets the peak to the current resident memory, and returns it."""
        # proc_pid_clear_refs(5): 5 resets the peak of the resident set.
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.resident_bytes()

    def peak_resident_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024

    def open_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def descriptors_at_rest(self) -> int:
        """Returns the number of descriptors once it is stable: start-up and closed connections are
        done.
        """

        def settled() -> int | None:
            before = self.open_descriptors()
            time.sleep(0.2)
            return before if self.open_descriptors() == before else None

        return eventually("a stable number of descriptors", settled)
