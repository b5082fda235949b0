"""What memory `pronghorn link` takes while each profile of this repository is full of packets."""

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
# All of a small agent, of which the link leaves most to what runs on it.
AGENT_BYTES = 512 * MIB
RESIDENT_BYTES = 96 * MIB
# The program's own pages count with what they would be, whether they are used or not.
LOCKED_BYTES = 192 * MIB

# Small packets take most memory for their bytes, full ones fill the queue. Nothing has to arrive.
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
    return {name: int(kib) * 1024 for name, kib in re.findall(r"^(Vm\w+):\s+(\d+) kB$", status, re.MULTILINE)}


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.stem)
def test_link_full_of_packets_fits_a_small_agent(tmp_path, profile):
    report = tmp_path / "report.json"
    call = [pronghorn(), "link", profile, "--report", report, "--", sys.executable, "-c", FLOOD]

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (AGENT_BYTES, AGENT_BYTES))

    link = subprocess.Popen(
        [str(part) for part in call], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=small
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
        # Root may lock as much as it wants, so that something has to be.
        assert memory["VmLck"] > 0, memory
    up = json.loads(report.read_text())["up"]
    assert up["packets_in"] > 0
    # What the profile asks for found room, and what it does not was dropped by its queue.
    assert up["packets_overflowed"] == 0, up
