"""Profiles of hostile and changing networks, with our client and server over HTTP/2 and HTTP/3."""

from __future__ import annotations

import csv
import json
import random
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.response import sha256
from harness.server import pronghorn

PROFILES = Path(__file__).parents[2] / "profiles"
PLAIN = "name = 'test'\n[up]\ndelay_ms = 5\n{}\n[down]\ndelay_ms = 5\n"
# LTE carries less than half of it in the three seconds before the handover.
CONTENT = random.Random(1).randbytes(12_000_000)


def get(
    identity, folder: Path, profile: Path, version: str, content: bytes, seconds: int, *options
) -> tuple[int, bool, dict]:
    """Runs a download with a time limit; returns its exit code, whether it completed, and the
    link's report.
    """
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "page").write_bytes(content)
    page, report = folder / "page", folder / "report.json"
    page.unlink(missing_ok=True)
    serve = [
        pronghorn(),
        "serve",
        folder / "site",
        "--listen",
        "10.77.0.2:443",
        "--cert",
        identity.cert,
    ]
    far = shlex.join(str(part) for part in [*serve, "--key", identity.key])
    link = [
        pronghorn(),
        "link",
        profile,
        *options,
        "--report",
        report,
        "--far",
        far,
        "--far-ready",
        "443",
        "--",
    ]
    download = [
        "timeout",
        seconds,
        pronghorn(),
        "get",
        "--http",
        version,
        "--no-verify",
        "-o",
        page,
    ]
    call = [str(part) for part in [*link, *download, "https://10.77.0.2/page"]]
    done = subprocess.run(call, capture_output=True, text=True, timeout=110)
    whole = page.exists() and sha256(page.read_bytes()) == sha256(content)
    return done.returncode, whole, json.loads(report.read_text())


def flows(report: dict, protocol: str) -> list[dict]:
    return [
        flow for flow in report["flows"] if flow["protocol"] == protocol and flow["far_port"] == 443
    ]


def test_http3_survives_a_handover(identity, tmp_path):
    code, whole, report = get(identity, tmp_path, PROFILES / "handover.toml", "3", CONTENT, 60)
    assert (code, whole) == (0, True)
    # One connection, and the second path has the new address.
    assert [flow["near_address"] for flow in flows(report, "udp")] == ["10.77.0.1", "10.77.0.5"]
    assert len({flow["near_port"] for flow in flows(report, "udp")}) == 1


def test_http2_does_not_survive_a_handover(identity, tmp_path):
    code, whole, report = get(identity, tmp_path, PROFILES / "handover.toml", "2", CONTENT, 6)
    assert code != 0
    assert not whole
    assert [flow["near_address"] for flow in flows(report, "tcp")] == ["10.77.0.1"]
    assert report["changes"][0]["made_seconds"] >= 3


def test_blocked_udp_stops_http3_only(identity, tmp_path):
    code, whole, report = get(identity, tmp_path, PROFILES / "udp-blocked.toml", "3", b"page", 3)
    assert code != 0
    assert not whole
    assert report["up"]["packets_blocked"] == report["up"]["packets_in"] > 0
    assert report["clean"] == report["kept_deadlines"]
    code, whole, report = get(identity, tmp_path, PROFILES / "udp-blocked.toml", "2", b"page", 60)
    assert (code, whole) == (0, True)
    assert report["up"]["packets_blocked"] == 0


@pytest.mark.parametrize(("version", "is_policed"), [("2", False), ("3", True)])
def test_policed_udp_slows_http3_only(identity, tmp_path, version, is_policed):
    code, whole, report = get(
        identity, tmp_path, PROFILES / "udp-policed.toml", version, CONTENT[:2_000_000], 60
    )
    assert (code, whole) == (0, True)
    assert (report["down"]["packets_policed"] > 0) == is_policed
    policed = sum(flow["down"]["packets_policed"] for flow in report["flows"])
    assert policed == report["down"]["packets_policed"]


@pytest.mark.parametrize(("version", "protocol"), [("2", "tcp"), ("3", "udp")])
def test_first_packet_can_be_lost(identity, tmp_path, version, protocol):
    profile = tmp_path / "profile.toml"
    profile.write_text(PLAIN.format("lose_packets = [1]"))
    code, whole, report = get(identity, tmp_path, profile, version, b"page", 60)
    assert (code, whole) == (0, True)
    # A SYN or the first Initial: it was the first packet, and was retransmitted.
    assert [flow["up"]["packets_lost"] for flow in flows(report, protocol)] == [1]
    assert (report["up"]["packets_lost"], report["down"]["packets_lost"]) == (1, 0)


def test_packets_are_dropped_by_their_number_in_the_log(identity, tmp_path):
    profile, log = tmp_path / "profile.toml", tmp_path / "packets.csv"
    profile.write_text(PLAIN.format("lose_packets = [2, 5, 6]"))
    code, whole, report = get(
        identity, tmp_path, profile, "2", CONTENT[:200_000], 60, "--packets", log
    )
    assert (code, whole) == (0, True)
    with log.open() as lines:
        fates = [row["fate"] for row in csv.DictReader(lines) if row["way"] == "up"]
    assert [number for number, fate in enumerate(fates, start=1) if fate == "lost"] == [2, 5, 6]
    assert len(fates) == report["up"]["packets_in"]


def test_committed_traces_match_their_script(tmp_path):
    subprocess.run(
        [sys.executable, PROFILES / "traces" / "make.py", tmp_path], check=True, capture_output=True
    )
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == sorted(path.name for path in (PROFILES / "traces").glob("*.trace"))
    for name in drawn:
        assert (tmp_path / name).read_bytes() == (PROFILES / "traces" / name).read_bytes()
