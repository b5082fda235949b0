"""Output files of `pronghorn link`: packets, TCP samples, CPU time; name lookups over the link."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from harness.server import pronghorn

WRONG_USE = 2
CANNOT_WRITE = 73

LOSSY = """
name = "lossy"
[up]
rate_mbit_per_second = 20
delay_ms = 5
loss_percent = 3
queue_ms = 100
[down]
rate_mbit_per_second = 20
delay_ms = 5
loss_percent = 3
queue_bytes = 5000
"""

FIRST_PACKET_LOST = """
name = "first-packet-lost"
[up]
delay_ms = 5
lose_packets = [1]
[down]
delay_ms = 5
"""

HOSTILE = """
name = "hostile"
[up]
delay_ms = 5
[down]
delay_ms = 5
jitter_ms = 4
reorder = true
[[rules]]
protocol = "udp"
port = 1001
block = true
[[rules]]
protocol = "udp"
port = 1002
direction = "up"
police_mbit_per_second = 0.1
police_burst_bytes = 3000
"""

SLOW_START = """
name = "slow-start"
[up]
delay_ms = 20
[down]
delay_ms = 20
rate_mbit_per_second = 50
queue_ms = 200
"""

FATES = {
    "packets_out": "delivered",
    "packets_lost": "lost",
    "packets_queue_dropped": "queue_full",
    "packets_blocked": "blocked",
    "packets_policed": "policed",
    "packets_overflowed": "overflow",
    "packets_oversized": "oversized",
    "packets_write_failed": "write_failed",
    "packets_held_at_end": "held",
}


def link(folder: Path, profile: str, *arguments) -> subprocess.CompletedProcess[str]:
    (folder / "profile.toml").write_text(profile)
    command = [str(part) for part in [pronghorn(), "link", folder / "profile.toml", *arguments]]
    return subprocess.run(command, capture_output=True, text=True, timeout=110)


def python(folder: Path, name: str, text: str) -> list[str]:
    """Returns a program for one end of the link."""
    (folder / name).write_text(text)
    return [sys.executable, str(folder / name)]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def serve(site, identity) -> str:
    command = [
        pronghorn(),
        "serve",
        site.root,
        "--listen",
        "10.77.0.2:443",
        "--cert",
        identity.cert,
    ]
    return shlex.join(str(part) for part in [*command, "--key", identity.key])


@pytest.mark.parametrize(("version", "protocol"), [("2", "tcp"), ("3", "udp")])
def test_packet_log_agrees_with_the_report(identity, site, tmp_path, version, protocol):
    report, packets = tmp_path / "report.json", tmp_path / "packets.csv"
    get = [pronghorn(), "get", "--http", version, "--no-verify", "-o", tmp_path / "page"]
    done = link(
        tmp_path,
        LOSSY,
        *["--seed", "7", "--report", report, "--packets", packets],
        *[
            "--far",
            serve(site, identity),
            "--far-ready",
            "443",
            "--",
            *get,
            "https://10.77.0.2/medium.bin",
        ],
    )
    assert done.returncode == 0, done.stderr
    report, packets = json.loads(report.read_text()), rows(packets)
    assert report["packets_unlogged"] == 0
    for way in ("up", "down"):
        logged = [row for row in packets if row["way"] == way]
        assert len(logged) == report[way]["packets_in"]
        assert sum(int(row["bytes"]) for row in logged) == report[way]["bytes_in"]
        fates = Counter(row["fate"] for row in logged)
        assert fates == Counter(
            {fate: report[way][count] for count, fate in FATES.items() if report[way][count]}
        )
        assert all(bool(row["left_ns"]) == (row["fate"] == "delivered") for row in logged)
        delay_ns = report[way]["asked"]["delay_ms"] * 1e6
        assert all(
            int(row["left_ns"]) >= int(row["arrived_ns"]) + delay_ns
            for row in logged
            if row["left_ns"]
        )
        for flow in report["flows"]:
            name = (flow["protocol"], *(str(flow[end] or "") for end in ("near_port", "far_port")))
            of_flow = [
                row
                for row in logged
                if (row["protocol"], row["near_port"], row["far_port"]) == name
            ]
            counted = flow[way]
            assert len(of_flow) == counted["packets"]
            assert sum(int(row["bytes"]) for row in of_flow) == counted["bytes"]
            fates = Counter(row["fate"] for row in of_flow)
            assert (fates["lost"], fates["queue_full"]) == (
                counted["packets_lost"],
                counted["packets_queue_dropped"],
            )
    assert {row["fate"] for row in packets} >= {"delivered", "lost", "queue_full"}
    # A client that has closed its socket answers late packets by ICMP.
    carriers = {(row["protocol"], row["far_port"]) for row in packets if row["protocol"] != "icmp"}
    assert carriers == {(protocol, "443")}
    arrived = [int(row["arrived_ns"]) for row in packets]
    assert arrived == sorted(arrived)


ECHO = """
import select, socket
sockets = []
for port in (1001, 1002):
    socket_of_port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    socket_of_port.bind(("10.77.0.2", port))
    sockets.append(socket_of_port)
listener = socket.create_server(("10.77.0.2", 1000))
while True:
    for ready in select.select(sockets, [], [])[0]:
        data, client = ready.recvfrom(2000)
        ready.sendto(data, client)
"""

SEND_TO_BOTH = """
import socket
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(20):
    for port in (1001, 1002):
        client.sendto(bytes(1000), ("10.77.0.2", port))
# What the bucket holds at first passes.
for number in range(2):
    client.recvfrom(2000)
"""


def test_packets_dropped_by_rules_have_their_own_fate(tmp_path):
    report, packets = tmp_path / "report.json", tmp_path / "packets.csv"
    done = link(
        tmp_path,
        HOSTILE,
        *["--report", report, "--packets", packets],
        *["--far", shlex.join(python(tmp_path, "far.py", ECHO)), "--far-ready", "1000"],
        *["--", *python(tmp_path, "near.py", SEND_TO_BOTH)],
    )
    assert done.returncode == 0, done.stderr
    report, packets = json.loads(report.read_text()), rows(packets)
    up = Counter((row["far_port"], row["fate"]) for row in packets if row["way"] == "up")
    assert up["1001", "blocked"] == report["up"]["packets_blocked"] == 20
    assert up["1002", "policed"] == report["up"]["packets_policed"] > 0
    assert up["1002", "delivered"] == report["up"]["packets_out"] >= 2
    assert not any(row["left_ns"] for row in packets if row["fate"] in ("blocked", "policed"))


def test_first_quic_packets_are_logged_by_type(identity, site, tmp_path):
    packets = tmp_path / "packets.csv"
    get = [
        pronghorn(),
        "get",
        "--http",
        "3",
        "--no-verify",
        "-o",
        tmp_path / "page",
        "https://10.77.0.2/medium.bin",
    ]
    lossless = LOSSY.replace("loss_percent = 3", "loss_percent = 0")
    far = ["--far", serve(site, identity), "--far-ready", "443"]
    done = link(tmp_path, lossless, *["--packets", packets], *far, "--", *get)
    assert done.returncode == 0, done.stderr
    packets = [row for row in rows(packets) if row["protocol"] == "udp"]
    for way in ("up", "down"):
        kinds = [row["kind"] for row in packets if row["way"] == way]
        # Once an endpoint has 1-RTT keys it soon uses nothing else.
        assert kinds[0] == "initial"
        assert set(kinds[:10]) <= {"initial", "handshake", "short"}
        assert set(kinds[10:]) == {"short"}
        assert {(row["sequence"], row["acknowledgement"]) for row in packets} == {("", "")}


CONNECT = """
import socket
socket.create_connection(("10.77.0.2", 443)).close()
"""

LISTEN = """
import socket
listener = socket.create_server(("10.77.0.2", 443))
while True:
    listener.accept()[0].close()
"""


def test_lost_and_retransmitted_syn_is_visible(tmp_path):
    packets = tmp_path / "packets.csv"
    done = link(
        tmp_path,
        FIRST_PACKET_LOST,
        *["--packets", packets],
        *["--far", shlex.join(python(tmp_path, "far.py", LISTEN)), "--far-ready", "443"],
        *["--", *python(tmp_path, "near.py", CONNECT)],
    )
    assert done.returncode == 0, done.stderr
    packets = rows(packets)
    first, second, answer = packets[:3]
    assert [row["kind"] for row in (first, second, answer)] == ["S", "S", "SA"]
    assert [row["fate"] for row in (first, second, answer)] == ["lost", "delivered", "delivered"]
    assert first["left_ns"] == ""
    assert [first[name] for name in ("near_port", "sequence")] == [
        second[name] for name in ("near_port", "sequence")
    ]
    assert int(answer["acknowledgement"]) == (int(first["sequence"]) + 1) % 2**32


SEND_MUCH = """
import socket
listener = socket.create_server(("10.77.0.2", 443))
connection, _ = listener.accept()
connection.sendall(bytes(6_000_000))
connection.close()
listener.accept()
"""

READ_ALL = """
import socket, sys
connection = socket.create_connection(("10.77.0.2", 443))
while connection.recv(65536):
    pass
"""


@pytest.mark.parametrize("congestion", ["reno", "cubic"])
def test_tcp_samples_of_a_bulk_transfer_show_a_growing_window(tmp_path, congestion):
    samples, report = tmp_path / "tcp-info.csv", tmp_path / "report.json"
    done = link(
        tmp_path,
        SLOW_START,
        *[
            "--tcp-congestion",
            congestion,
            "--tcp-info",
            samples,
            "--tcp-info-every-ms",
            "5",
            "--report",
            report,
        ],
        *["--far", shlex.join(python(tmp_path, "far.py", SEND_MUCH)), "--far-ready", "443"],
        *["--", *python(tmp_path, "near.py", READ_ALL)],
    )
    assert done.returncode == 0, done.stderr
    samples = rows(samples)
    assert {row["congestion"] for row in samples} == {congestion}
    assert {row["end"] for row in samples} == {"near", "far"}
    assert {row["far_port"] for row in samples} == {"443"}
    sender = [row for row in samples if row["end"] == "far"]
    assert len(sender) > 20
    # Slow start opens the window by the acknowledged bytes, from the kernel's initial ten packets.
    windows = [int(row["cwnd_packets"]) for row in sender]
    acknowledged = [int(row["bytes_acked"]) for row in sender]
    assert windows[0] <= 10 + acknowledged[0] / int(sender[0]["mss"])
    # A pause of the machine may end CUBIC's slow start early.
    ended = json.loads(report.read_text())["hystart"] or {}
    ended_at = ended.get("train_cwnd_packets", 0) + ended.get("delay_cwnd_packets", 0)
    assert max(windows) >= min(160, ended_at or 160)
    assert max(windows) > windows[0]
    assert acknowledged == sorted(acknowledged)
    assert all(int(row["rtt_us"]) >= 40_000 for row in sender)
    assert json.loads(report.read_text())["tcp_info"]["samples"] >= 20


BURN = """
import json, os, sys, time

def burn(seconds):
    while time.process_time() < seconds:
        sum(range(10_000))

child = os.fork()
if child == 0:
    burn(0.4)
    os._exit(0)
os.waitpid(child, 0)
burn(0.8)
if os.fork() == 0:
    # This child is not waited for, so its time is not in this program's own times.
    os.setsid()
    burn(0.5)
    times = os.times()
    json.dump(times.user + times.system, open(sys.argv[2] + ".new", "w"))
    os.rename(sys.argv[2] + ".new", sys.argv[2])
    time.sleep(1000)
times = os.times()
json.dump(times.user + times.system + times.children_user + times.children_system, open(sys.argv[1] + ".new", "w"))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)
"""

WAIT_FOR_FILES = """
import os, sys, time
while not all(map(os.path.exists, sys.argv[1:])):
    time.sleep(0.02)
"""


def test_cpu_time_of_a_busy_far_command_matches_its_own_measurement(tmp_path):
    report, measured, orphan = tmp_path / "report.json", tmp_path / "measured", tmp_path / "orphan"
    far = [*python(tmp_path, "far.py", BURN), str(measured), str(orphan)]
    near = [*python(tmp_path, "near.py", WAIT_FOR_FILES), measured, orphan]
    done = link(tmp_path, LOSSY, "--report", report, "--far", shlex.join(far), "--", *near)
    assert done.returncode == 0, done.stderr
    report = json.loads(report.read_text())
    itself = json.loads(measured.read_text()) + json.loads(orphan.read_text())
    counted = sum(report["commands"]["far"]["cpu_seconds"].values())
    assert counted == pytest.approx(itself, rel=0.1)
    others = [report["commands"]["near"]["cpu_seconds"], *report["cpu_seconds"].values()]
    # It works in user mode. The kernel's time to set up a link depends on the machine.
    assert all(other["user"] < itself / 2 for other in others), others


NAME_SERVER = """
import socket, struct
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("10.77.0.2", 53))
# Says that it is ready to whoever looks for a listener.
listener = socket.create_server(("10.77.0.2", 53))
while True:
    query, client = server.recvfrom(2000)
    end = query.index(0, 12) + 5
    kind = struct.unpack("!H", query[end - 4:end - 2])[0]
    answer = b"\\xc0\\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + socket.inet_aton("10.77.0.2") if kind == 1 else b""
    head = query[:2] + struct.pack("!HHHHH", 0x8580, 1, 1 if answer else 0, 0, 0)
    server.sendto(head + query[12:end] + answer, client)
"""

LOOK_UP = """
import socket
print(socket.gethostbyname("www.lab.test"))
"""


def test_names_are_looked_up_over_the_link(tmp_path):
    packets = tmp_path / "packets.csv"
    far = shlex.join(python(tmp_path, "far.py", NAME_SERVER))
    lossless = LOSSY.replace("loss_percent = 3", "loss_percent = 0")
    done = link(
        tmp_path,
        lossless,
        *["--resolver", "10.77.0.2", "--packets", packets, "--far", far, "--far-ready", "53"],
        *["--", *python(tmp_path, "near.py", LOOK_UP)],
    )
    assert (done.returncode, done.stdout) == (0, "10.77.0.2\n"), done.stderr
    packets = rows(packets)
    assert {(row["protocol"], row["far_port"], row["kind"]) for row in packets} == {
        ("udp", "53", "")
    }
    assert {row["way"] for row in packets} == {"up", "down"}


@pytest.mark.parametrize(
    ("arguments", "code", "mentions"),
    [
        (["--packets", "/no/such/folder/packets.csv"], CANNOT_WRITE, "/no/such/folder/packets.csv"),
        (["--tcp-info", "/no/such/folder/tcp.csv"], CANNOT_WRITE, "/no/such/folder/tcp.csv"),
        (["--resolver", "192.0.2.1"], WRONG_USE, "10.77.0.2"),
        (
            ["--packets", "one.file", "--report", "one.file"],
            WRONG_USE,
            "--report and --packets both name one.file",
        ),
    ],
    ids=["packets", "tcp-info", "resolver", "one-file"],
)
def test_impossible_options_are_errors_before_the_command_starts(
    tmp_path, arguments, code, mentions
):
    done = link(tmp_path, LOSSY, *arguments, "--", "touch", tmp_path / "ran")
    assert done.returncode == code
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr), done.stderr
    assert mentions in done.stderr
    assert not (tmp_path / "ran").exists()


def test_trace_on_a_full_disk_affects_neither_the_command_nor_the_report(tmp_path):
    report = tmp_path / "report.json"
    done = link(
        tmp_path,
        LOSSY,
        "--packets",
        "/dev/full",
        "--report",
        report,
        "--",
        "touch",
        tmp_path / "ran",
    )
    assert done.returncode == CANNOT_WRITE
    assert "error: cannot write the packets /dev/full: " in done.stderr
    assert (tmp_path / "ran").exists()
    assert json.loads(report.read_text())["commands"]["near"]["exit_code"] == 0
