"""The suite `fleet` on tiny loads, with real servers, so that it works when it is needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness.server import pronghorn

from bench.fleet.arrangements import HANDSHAKES, TURNS

REPOSITORY = Path(__file__).resolve().parents[2]


def fleet(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "bench.fleet", *map(str, arguments)]
    environment = {**os.environ, "PRONGHORN": str(pronghorn()), **variables}
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=280
    )


@pytest.mark.parametrize("parts", ["handshakes,signatures", "turns"])
def test_each_part_is_measured(parts, tmp_path):
    assert shutil.which("redis-server"), "install redis-server"
    done = fleet("--quick", "--parts", parts, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    report = (tmp_path / "out" / "report.md").read_text()
    assert "## Failed runs\n\nNone." in report, report
    assert "Traceback" not in done.stderr
    if parts == "turns":
        rows = [(f"{protocol}-turns", one.name) for protocol in ("h3", "h2") for one in TURNS]
        for protocol in ("h3", "h2"):
            # Each of the signatures arrives 200 ms late.
            median = report.split(f"| {protocol}-turns | slow-p256 |")[1].split("|")[5]
            assert float(median.split()[0]) >= 200, report
    else:
        kinds = [
            f"{protocol}-{kind}" for protocol in ("h3", "h2") for kind in ("full", "early-data")
        ]
        rows = [(kind, one.name) for kind in kinds for one in HANDSHAKES]
        assert re.search(r"\| h3-early-data \| [\d.]+ \| .*GETDEL [1-9].*SET [1-9]", report), report
        assert re.search(r"^\| rsa2048 \| [\d,]+ ", report, re.MULTILINE), report
        assert re.search(r"^\| 1,000 \| 100,000 \| ", report, re.MULTILINE), report
    for workload, name in rows:
        assert f"| {workload} | {name} |" in report, report


def test_missing_redis_is_an_error_before_anything_runs(tmp_path):
    done = fleet("--quick", "--out", tmp_path / "out", PRONGHORN_BENCH_REDIS="no-redis")
    assert done.returncode == 2
    assert done.stderr.startswith("error: PRONGHORN_BENCH_REDIS=no-redis: program not found")
    assert not (tmp_path / "out").exists()


def test_unknown_part_and_used_folder_are_errors(tmp_path):
    done = fleet("--parts", "handshakes,all", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown part all; known: handshakes, signatures, turns")
    done = fleet("--quick", "--out", tmp_path)
    assert done.returncode == 2
    assert "exists; choose another --name or --out" in done.stderr


def test_missing_program_is_an_error_that_says_how_to_build_it(tmp_path):
    done = fleet("--quick", PRONGHORN=str(tmp_path / "none"))
    assert done.returncode == 2
    assert done.stderr == (
        f"error: no program at {tmp_path}/none; run `make build-program`, or set PRONGHORN\n"
    )
