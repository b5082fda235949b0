"""The growth suite on tiny sizes, so that it works when it is needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness.server import pronghorn

REPOSITORY = Path(__file__).resolve().parents[2]


def scale(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "bench.scale", *arguments]
    environment = {**os.environ, "PRONGHORN": str(pronghorn()), "PRONGHORN_BENCH_NGINX": "no-nginx"}
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=280
    )


@pytest.mark.parametrize(
    "dimensions", ["sites,certificates,layers", "routes,upstreams", "addresses,connections,unread"]
)
def test_each_dimension_is_measured(dimensions):
    done = scale("--sizes", "1,2", "--dimensions", dimensions)
    assert done.returncode == 0, done.stderr
    for name in dimensions.split(","):
        assert re.search(
            rf"^\| {name} \| 2 \| pronghorn \| [\d.e-]+ \(x ", done.stdout, re.MULTILINE
        ), done.stdout + done.stderr


def test_unknown_dimension_is_an_error_that_lists_the_known_ones():
    done = scale("--dimensions", "sizes")
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown dimension sizes; known: sites, ")
