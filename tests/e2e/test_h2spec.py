"""h2spec in strict mode: each of its rules of RFC 9113 and RFC 7541, on both servers, without a
failure.
"""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from harness.server import Server, h2spec

CASES = 146
"""Number of the suite's cases: one that did not run must not count as success."""
TIMEOUT_SECONDS = 10
"""Time that the suite waits for a frame in each case. It waits that long only where a case fails.
"""


# The content is larger than the first window, so that data is pending when the suite overflows the
# window: h2 ignores windows of a stream that it has finished sending.
@pytest.mark.parametrize(
    ("kind", "path"),
    [("server", "/medium.bin"), ("handler", "/bytes/100000")],
    ids=["serve", "handler"],
)
def test_h2spec_passes(request, tmp_path, kind, path):
    # The suite needs a path where GET returns content and POST is answered.
    server: Server = request.getfixturevalue(kind)
    report = tmp_path / "report.xml"
    command = [h2spec(), "--strict", "-t", "-k", "-h", server.host, "-p", server.port, "-P", path]
    command += ["-j", report, "-o", TIMEOUT_SECONDS]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    cases = list(ElementTree.parse(report).iter("testcase"))
    bad = [
        f"{case.get('package')} {case.get('classname')}: {problem.tag}: {problem.text}"
        for case in cases
        for problem in case
        if problem.tag in ("failure", "error", "skipped")
    ]
    assert not bad, "\n".join(bad)
    assert len(cases) == CASES
    assert done.returncode == 0, done.stdout[-2000:]
