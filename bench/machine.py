"""Description of the machine, and its other load during a measurement."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def describe() -> dict:
    info = Path("/proc/cpuinfo").read_text()
    memory = re.search(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return {
        "cpu": first(r"^model name\s*:\s*(.+)$", info),
        "cpu_family_model": "/".join(
            first(rf"^{name}\s*:\s*(.+)$", info) for name in ("cpu family", "model")
        ),
        "cores": os.cpu_count(),
        "memory_mib": int(memory[1]) // 1024 if memory else None,
        "kernel": platform.release(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", "?"),
        "virtual": "hypervisor" in info,
        "congestion_control": congestion_control(),
        "rmem_max": read("/proc/sys/net/core/rmem_max"),
        "rmem_default": read("/proc/sys/net/core/rmem_default"),
        "lo_mtu": lo_mtu(),
        "load_average": os.getloadavg()[0],
    }


def lo_mtu() -> int:
    # sysfs shows the namespace that it was mounted in, the command its own.
    shown = subprocess.run(["ip", "-json", "link", "show", "lo"], capture_output=True, check=True)
    return json.loads(shown.stdout)[0]["mtu"]


def congestion_control() -> str:
    """Returns the congestion control of a TCP connection over loopback."""
    with socket.socket() as listener, socket.socket() as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            return (
                accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
                .rstrip(b"\0")
                .decode()
            )


def first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else "?"


def read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return "?"


@dataclass(frozen=True)
class Ticks:
    """CPU time of all processors together since boot, in seconds."""

    at: float
    idle: float
    steal: float
    processors: int

    @classmethod
    def now(cls) -> Ticks:
        return cls.parse(Path("/proc/stat").read_text(), time.monotonic())

    @classmethod
    def parse(cls, text: str, at: float) -> Ticks:
        # proc_stat(5): user nice system idle iowait irq softirq steal ...
        total = next(line for line in text.splitlines() if line.startswith("cpu ")).split()[1:]
        seconds = [int(value) / CLOCK_TICKS_PER_SECOND for value in total]
        processors = len(re.findall(r"^cpu\d+ ", text, re.MULTILINE))
        return cls(at, seconds[3] + seconds[4], seconds[7], processors)


@dataclass(frozen=True)
class Others:
    """CPU use beside the measurement, in processors."""

    foreign: float
    stolen: float

    @classmethod
    def between(cls, before: Ticks, after: Ticks, own_seconds: float) -> Others:
        """Computes the other load.

        `own_seconds`: CPU time of everything that belongs to the measurement.
        """
        elapsed = after.at - before.at
        stolen = after.steal - before.steal
        busy = elapsed * after.processors - (after.idle - before.idle) - stolen
        return cls(max(0.0, (busy - own_seconds) / elapsed), stolen / elapsed)
