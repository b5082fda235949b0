"""Memory of `pronghorn link` while each profile of this repository is full of packets."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from harness.server import pronghorn

PROFILES = sorted((Path(__file__).parents[2] / "profiles").glob("*.toml"))
MIB = 1 << 20
# Total memory of a small agent, most of which the link must leave to the measured programs.
AGENT_BYTES = 512 * MIB
RESIDENT_BYTES = 96 * MIB
# The program's own pages count at their full size, whether they are used or not.
LOCKED_BYTES = 192 * MIB

# Small packets need the most memory per byte, full ones fill the queue. None has to arrive.
FLOOD = """
import socket, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for size in (12, 1472):
    end = time.monotonic() + 0.25
    while time.monotonic() < end:
        try:
            sock.sendto(bytes(size), ("10.77.0.2", 9))
        except OSError:
            pass
print("full", flush=True)
sys.stdin.read()
"""


def memory_of(process: int) -> dict[str, int]:
    status = Path(f"/proc/{process}/status").read_text()
    return {
        name: int(kib) * 1024
        for name, kib in re.findall(r"^(Vm\w+):\s+(\d+) kB$", status, re.MULTILINE)
    }


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.stem)
def test_link_full_of_packets_fits_a_small_machine(tmp_path, profile):
    report = tmp_path / "report.json"
    call = [pronghorn(), "link", profile, "--report", report, "--", sys.executable, "-c", FLOOD]

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (AGENT_BYTES, AGENT_BYTES))

    link = subprocess.Popen(
        [str(part) for part in call],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=small,
    )
    with link:
        assert link.stdout.readline() == "full\n"
        memory = memory_of(link.pid)
        link.stdin.close()
    assert link.returncode == 0
    assert memory["VmPeak"] <= AGENT_BYTES, memory
    assert memory["VmHWM"] <= RESIDENT_BYTES, memory
    assert memory["VmLck"] <= LOCKED_BYTES, memory
    if os.geteuid() == 0:
        # Root may lock unlimited memory, so it must lock some.
        assert memory["VmLck"] > 0, memory
    up = json.loads(report.read_text())["up"]
    assert up["packets_in"] > 0
    # All packets within the profile's queue were stored; the others were dropped by the queue.
    assert up["packets_overflowed"] == 0, up
