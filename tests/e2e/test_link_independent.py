"""Compares an emulated link with its profile, measured by independent tools: iperf3 and ping."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import statistics
import subprocess

import pytest

from harness.server import pronghorn

RATE_MBIT_PER_SECOND = 20
# TCP payload of an IP packet of 1500 bytes, as iperf3 counts: TCP's header has its timestamps.
TCP_SHARE = 1448 / 1500
DATAGRAM_BYTES = 1400
UDP_SHARE = DATAGRAM_BYTES / (DATAGRAM_BYTES + 28)
SECONDS = 5
# The link's own calibration allows 1 % and 0.3 ms each way; the tools read their clocks later than
# the link does.
RATE_BOUND = 0.015
DELAY_BOUND_MS = 0.8
# Of a normal distribution, two-sided: once in 1,500 tests by chance.
STANDARD_ERRORS = 3.4

# Requirement for one core: this many packets in flight at nearly the whole rate.
FAST_MBIT_PER_SECOND = 300
LEAST_SENT_MBIT_PER_SECOND = 285
IN_FLIGHT_PACKETS = 2000

pytestmark = [pytest.mark.serial]


def link(tmp_path, up: str, down: str, command: list, *far: str) -> tuple[str, dict]:
    profile, report = tmp_path / "profile.toml", tmp_path / "report.json"
    profile.write_text(f'name = "test"\n[up]\n{up}\n[down]\n{down}\n')
    call = [pronghorn(), "link", profile, "--seed", "3", "--report", report, *far, "--", *command]
    done = subprocess.run([str(part) for part in call], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    if not found["kept_deadlines"]:
        pytest.skip("the machine was too busy for the link to keep its deadlines")
    return done.stdout, found


def iperf3(tmp_path, up: str, down: str, *arguments: str) -> tuple[dict, dict]:
    """Returns the reports of iperf3 and of the link."""
    server = [
        "--far",
        shlex.join(["iperf3", "--server", "--one-off", "--json"]),
        "--far-ready",
        "5201",
    ]
    client = [
        "iperf3",
        "--client",
        "10.77.0.2",
        "--json",
        "--get-server-output",
        "--time",
        str(SECONDS),
        *arguments,
    ]
    output, report = link(tmp_path, up, down, client, *server)
    return json.loads(output), report


def received_mbit_per_second(result: dict, reverse: bool) -> float:
    """Median second at the receiver, without the first, in which TCP starts, and the last, which is
    partial.
    """
    receiver = result if reverse else result["server_output_json"]
    seconds = [interval["sum"]["bits_per_second"] / 1e6 for interval in receiver["intervals"]]
    assert len(seconds) >= SECONDS, seconds
    return statistics.median(seconds[1 : SECONDS - 1])


@pytest.mark.parametrize("reverse", [False, True], ids=["up", "down"])
@pytest.mark.parametrize(("protocol", "share"), [("tcp", TCP_SHARE), ("udp", UDP_SHARE)])
def test_iperf3_measures_the_configured_rate(tmp_path, protocol, share, reverse):
    slow = f"rate_mbit_per_second = {RATE_MBIT_PER_SECOND}\ndelay_ms = 10\nqueue_ms = 60"
    fast = "rate_mbit_per_second = 100\ndelay_ms = 10\nqueue_ms = 60"
    udp = ["--udp", "--bitrate", f"{RATE_MBIT_PER_SECOND * 1.5}M", "--length", str(DATAGRAM_BYTES)]
    up, down = (fast, slow) if reverse else (slow, fast)
    arguments = [*(udp if protocol == "udp" else []), *(["--reverse"] if reverse else [])]
    result, report = iperf3(tmp_path, up, down, *arguments)
    expected = RATE_MBIT_PER_SECOND * share
    assert received_mbit_per_second(result, reverse) == pytest.approx(expected, rel=RATE_BOUND), (
        report
    )


@pytest.mark.parametrize(("up_ms", "down_ms"), [(35, 35), (5, 60), (0, 2.5)])
@pytest.mark.parametrize("address", ["10.77.0.2", "fd77::2"])
def test_ping_measures_the_configured_delay(tmp_path, address, up_ms, down_ms):
    command = ["ping", "-n", "-c", "60", "-i", "0.02", address]
    output, _ = link(tmp_path, f"delay_ms = {up_ms}", f"delay_ms = {down_ms}", command)
    times = [float(found) for found in re.findall(r"time=([\d.]+) ms", output)]
    assert len(times) == 60, output
    # ping rounds to three digits.
    asked = up_ms + down_ms
    assert min(times) >= asked * 0.995
    assert statistics.median(times) == pytest.approx(asked, abs=2 * DELAY_BOUND_MS)


@pytest.mark.parametrize("reverse", [False, True], ids=["up", "down"])
@pytest.mark.parametrize(
    ("loss", "percent", "worth"),
    [
        ("loss_percent = 5", 5, 1),
        # Losses in bursts of three on average carry as much information as a fifth of as many
        # independent losses.
        ("loss_percent = 5\nloss_burst_packets = 3", 5, 0.22),
    ],
    ids=["alone", "bursts"],
)
def test_iperf3_counts_the_configured_loss(tmp_path, loss, percent, worth, reverse):
    lossy, clean = f"delay_ms = 10\n{loss}", "delay_ms = 10"
    up, down = (clean, lossy) if reverse else (lossy, clean)
    # The socket buffer allows for slow reads on a busy machine: iperf3 counts its own socket's
    # drops as losses.
    arguments = [
        "--udp",
        "--bitrate",
        "8M",
        "--length",
        "200",
        "--window",
        "2M",
        *(["--reverse"] if reverse else []),
    ]
    result, report = iperf3(tmp_path, up, down, *arguments)
    counted = result["end"]["sum_received"]
    packets, lost = counted["packets"], counted["lost_packets"]
    assert packets > 20_000, counted
    # The link's own count is the same except for packets after the last one that iperf3 accepted:
    # the sender continues until it is told to stop.
    way = "down" if reverse else "up"
    flow = max(
        (flow for flow in report["flows"] if flow["protocol"] == "udp"),
        key=lambda flow: flow[way]["bytes"],
    )
    later = flow[way]["packets"] - packets
    assert -20 <= flow[way]["packets_lost"] - lost <= max(20, later), report
    assert later <= packets / 20, report
    error = math.sqrt(packets * worth * percent / 100 * (1 - percent / 100)) / worth
    assert abs(lost - packets * percent / 100) <= STANDARD_ERRORS * error, counted


@pytest.mark.long
def test_one_core_carries_300_mbit_per_second_in_time(tmp_path):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("iperf3 needs a second core")
    of_link, of_iperf3 = (["taskset", "--cpu-list", str(core)] for core in (cores[-1], cores[0]))
    path = f"rate_mbit_per_second = {FAST_MBIT_PER_SECOND}\ndelay_ms = 100\nqueue_ms = 80"
    profile, report = tmp_path / "profile.toml", tmp_path / "report.json"
    profile.write_text(f'name = "test"\n[up]\n{path}\n[down]\n{path}\n')
    server = shlex.join([*of_iperf3, "iperf3", "--server", "--one-off"])
    load = ["--udp", "--bitrate", "290M", "--length", "1472", "--window", "4M", "--time", "10"]
    client = [*of_iperf3, "iperf3", "--client", "10.77.0.2", *load]
    link = [
        *of_link,
        pronghorn(),
        "link",
        profile,
        "--report",
        report,
        "--far",
        server,
        "--far-ready",
        "5201",
    ]
    call = [str(part) for part in [*link, "--", *client]]
    done = subprocess.run(call, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    up = found["up"]
    if up["bytes_in"] * 8 / 10e6 < LEAST_SENT_MBIT_PER_SECOND:
        pytest.skip("the machine was too busy for iperf3 to reach the rate")
    assert up["held_max_packets"] >= IN_FLIGHT_PACKETS, up
    assert found["clean"], up
    assert up["packets_queue_dropped"] == 0, up
