"""h2spec in strict mode: every rule of RFC 9113 and RFC 7541 that it knows, on both servers, without one failure."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from harness.server import Server, h2spec

CASES = 146
"""How many cases the suite has, so that one that did not run is no success."""
TIMEOUT_SECONDS = 10
"""How long the suite waits for a frame in each case. It waits that long only where a case fails."""


# The content is larger than the first window, so that there is something to send when the suite makes the window
# overflow: h2 does not look at the windows of a stream that it has sent to its end.
@pytest.mark.parametrize(
    ("kind", "path"), [("server", "/medium.bin"), ("handler", "/bytes/100000")], ids=["serve", "handler"]
)
def test_h2spec_finds_nothing(request, tmp_path, kind, path):
    # Of the path, the suite wants that GET gives content and that POST is answered.
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
