"""`pronghorn link`: Pronghorn and independent clients across an emulated link, and errors in a
profile.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from harness.response import sha256
from harness.server import pronghorn, quic_go_client
from harness.unprivileged import copied, open_folder, without_rights

COMMAND_MISSING = 127
MALFORMED = 65
MISSING = 66
NO_PERMISSION = 77

PROFILE = """
name = "test"
[up]
rate_mbit_per_second = 20
delay_ms = 5
loss_percent = 2
queue_ms = 100
[down]
rate_mbit_per_second = 20
delay_ms = 5
loss_percent = 2
queue_ms = 100
"""


@pytest.fixture
def profile(tmp_path) -> Path:
    path = tmp_path / "profile.toml"
    path.write_text(PROFILE)
    return path


def link(*arguments, **options) -> subprocess.CompletedProcess[str]:
    command = [str(part) for part in [pronghorn(), "link", *arguments]]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, **options)


@pytest.mark.parametrize("host", ["10.77.0.2", "fd77::2"])
@pytest.mark.parametrize(("version", "carried_by"), [("1.1", "tcp"), ("2", "tcp"), ("3", "udp")])
def test_page_loads_over_a_lossy_link_with_each_protocol(
    identity, site, profile, tmp_path, host, version, carried_by
):
    address = f"[{host}]" if ":" in host else host
    certificate = ["--cert", identity.cert, "--key", identity.key]
    far = shlex.join(
        str(part)
        for part in [pronghorn(), "serve", site.root, "--listen", f"{address}:443", *certificate]
    )
    get = [
        pronghorn(),
        "get",
        "--http",
        version,
        "--no-verify",
        "-o",
        tmp_path / "page",
        f"https://{address}/medium.bin",
    ]
    done = link(
        profile,
        "--far",
        far,
        "--far-ready",
        "443",
        "--report",
        tmp_path / "report.json",
        "--",
        *get,
    )
    assert done.returncode == 0, done.stderr
    assert sha256((tmp_path / "page").read_bytes()) == sha256(site.read("medium.bin"))
    report = json.loads((tmp_path / "report.json").read_text())
    flows = [flow for flow in report["flows"] if flow["far_port"] == 443]
    assert {flow["protocol"] for flow in flows} == {carried_by}
    assert sum(flow["down"]["bytes"] for flow in flows) > len(site.read("medium.bin"))
    for direction in ("up", "down"):
        counted = report[direction]
        parts = [
            value
            for name, value in counted.items()
            if name.startswith("packets_") and name != "packets_in"
        ]
        assert counted["packets_in"] == sum(parts)


def test_quic_go_reaches_our_server_over_the_link(identity, site, profile):
    # The certificate is not for the link's addresses, so the client gets the expected name as an
    # option.
    certificate = ["--cert", identity.cert, "--key", identity.key]
    far = shlex.join(
        str(part)
        for part in [pronghorn(), "serve", site.root, "--listen", "10.77.0.2:443", *certificate]
    )
    asked = json.dumps(
        {"url": "https://10.77.0.2/medium.bin", "method": "GET", "timeout_seconds": 60}
    )
    client = [quic_go_client(), "-http", "3", "-ca", identity.ca, "-server-name", "localhost"]
    done = link(profile, "--far", far, "--far-ready", "443", "--", *client, input=asked + "\n")
    assert done.returncode == 0, done.stderr
    response = json.loads(done.stdout)["responses"][0]
    assert response.get("error", "") == ""
    assert response["sha256"] == sha256(site.read("medium.bin"))


@pytest.mark.parametrize(("version", "counted"), [("2", True), ("3", False)])
def test_end_of_slow_start_is_counted_for_tcp(identity, tmp_path, version, counted):
    # Without loss, for which the queue is long enough, slow start ends when HyStart detects the
    # full link.
    path = "rate_mbit_per_second = 20\ndelay_ms = 10\nqueue_ms = 10000\n"
    (tmp_path / "profile.toml").write_text(f'name = "test"\n[up]\n{path}[down]\n{path}')
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "page").write_bytes(bytes(3_000_000))
    serve = [pronghorn(), "serve", tmp_path / "site", "--listen", "10.77.0.2:443"]
    far = shlex.join(str(part) for part in [*serve, "--cert", identity.cert, "--key", identity.key])
    run = [
        "--tcp-congestion",
        "cubic",
        "--report",
        tmp_path / "report.json",
        "--far",
        far,
        "--far-ready",
        "443",
    ]
    get = [
        pronghorn(),
        "get",
        "--http",
        version,
        "--no-verify",
        "-o",
        "/dev/null",
        "https://10.77.0.2/page",
    ]
    # A sender without processor time never fills the link, and slow start does not end.
    for _ in range(5):
        done = link(tmp_path / "profile.toml", *run, "--", *get)
        assert done.returncode == 0, done.stderr
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["down"]["packets_queue_dropped"] == 0
        hystart = report["hystart"]
        if hystart is None:
            pytest.skip("this kernel does not count the ends of slow start")
        detected = hystart["train_detected"] + hystart["delay_detected"]
        if detected == counted:
            break
    assert detected == counted, hystart
    assert (hystart["train_cwnd_packets"] + hystart["delay_cwnd_packets"] >= 16) == counted, hystart


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_exit_code_of_the_command_is_returned(profile, code):
    assert link(profile, "--", "sh", "-c", f"exit {code}").returncode == code


def test_signal_that_ended_the_command_is_reported(profile):
    assert link(profile, "--", "sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL


def test_unknown_command_is_an_error(profile):
    done = link(profile, "--", "no-such-command-anywhere")
    assert done.returncode == COMMAND_MISSING
    assert_one_error_line(done.stderr, "no-such-command-anywhere")


def test_missing_profile_is_an_error(tmp_path):
    done = link(tmp_path / "none.toml", "--", "true")
    assert done.returncode == MISSING
    assert_one_error_line(done.stderr, "none.toml")


@pytest.mark.parametrize(
    ("broken", "mentions"),
    [
        (PROFILE.replace("delay_ms", "delay_miles", 1), "delay_miles"),
        (PROFILE.replace("loss_percent = 2", "loss_percent = 101", 1), "loss_percent"),
        (
            PROFILE.replace("rate_mbit_per_second = 20", 'rate_mbit_per_second = "fast"', 1),
            "rate_mbit_per_second",
        ),
        (PROFILE.replace("delay_ms = 5", "delay_ms = -5", 1), "delay_ms"),
        (PROFILE.partition("[down]")[0], "down"),
        ("this is no TOML", "profile.toml"),
    ],
    ids=["unknown-key", "too-much-loss", "wrong-type", "negative-delay", "no-down", "no-toml"],
)
def test_malformed_profile_is_an_error_that_names_the_key(tmp_path, broken, mentions):
    profile = tmp_path / "profile.toml"
    profile.write_text(broken)
    report = tmp_path / "report.json"
    done = link(profile, "--report", report, "--", "touch", tmp_path / "ran")
    assert done.returncode == MALFORMED, done.stderr
    assert_one_error_line(done.stderr, mentions)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["profile.toml"]


def test_missing_permission_for_the_tun_device_is_an_error(profile):
    if os.geteuid() != 0:
        pytest.skip(
            "needs root to drop privileges; the link's own tests cover the unprivileged user"
        )
    with open_folder() as folder:
        device = "mknod tun c 10 200 && chmod 600 tun && mount --bind tun /dev/net/tun"
        command = without_rights(
            [copied(pronghorn(), folder), "link", copied(profile, folder), "--", "true"]
        )
        command = ["unshare", "--mount", "sh", "-c", f"{device} && exec {shlex.join(command)}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder)
    assert done.returncode == NO_PERMISSION, done.stderr
    assert_one_error_line(done.stderr, "/dev/net/tun")


def assert_one_error_line(stderr: str, mentions: str) -> None:
    assert re.fullmatch(r"error: [^\n]+\n", stderr), stderr
    assert mentions in stderr
