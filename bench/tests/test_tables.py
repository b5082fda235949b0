"""The committed tables, and error messages for wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import SUITES
from bench.tables import SUBJECT, TableError, read_contestants, read_workloads, select

FOLDER = Path(__file__).resolve().parents[1]

CONTESTANT = """
[[contestant]]
name = "one"
env = "PRONGHORN_BENCH_ONE"
version = ["{path}", "--version"]
version_pattern = 'one \\S+'
start = ["{path}", "--port", "{port}"]
protocols = ["h3"]
answers_from = "files"
"""

WORKLOAD = """
[[workload]]
name = "small"
kind = "requests"
protocol = "h3"
file = "13.txt"
connections = 10
requests = 1000
"""


def contestants(tmp_path: Path, text: str = CONTESTANT):
    path = tmp_path / "contestants.toml"
    path.write_text(text)
    return read_contestants(path)


def workloads(tmp_path: Path, text: str):
    path = tmp_path / "workloads.toml"
    path.write_text(text)
    return read_workloads(path, contestants(tmp_path))


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_committed_tables_are_valid(suite):
    known = read_contestants(suite / "contestants.toml")
    loads = read_workloads(suite / "workloads.toml", known)
    assert SUBJECT in known
    for contestant in known.values():
        assert contestant.config is None or (FOLDER / contestant.config).is_file()
        scripts = [part for part in contestant.start if part.startswith("{bench}/")]
        assert all(Path(part.format(bench=FOLDER)).is_file() for part in scripts)
    for workload in loads.values():
        assert any(serves(contestant, workload) for contestant in known.values())
        for bound in workload.bounds:
            other = loads[bound.workload or workload.name]
            assert serves(known[bound.of], workload)
            assert serves(known[bound.peer or bound.of], other)
            assert not (bound.workload and set(workload.generators) - set(other.generators))


def serves(contestant, workload) -> bool:
    return workload.protocol in contestant.protocols and workload.handler in contestant.handlers


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ('protocols = ["h4"]', "invalid 'h4'; allowed: h1, h1-clear, h2, h3"),
        ('answers_from = "air"', "invalid 'air'; allowed: files, handler, memory"),
        ('start = ["{path}", "{prot}"]', "unknown placeholder {prot}"),
        ('colour = "red"', "invalid 'colour'; allowed: "),
    ],
)
def test_wrong_contestant_is_an_error_with_the_allowed_values(tmp_path, wrong, message):
    key = wrong.split(" = ")[0]
    kept = "\n".join(line for line in CONTESTANT.splitlines() if not line.startswith(f"{key} ="))
    with pytest.raises(TableError, match=r"contestant one") as error:
        contestants(tmp_path, f"{kept}\n{wrong}\n")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('cipher = "TLS_CHACHA20_POLY1305_SHA256"', "cannot choose a cipher"),
        ("rate = 10.0", "belong together"),
        ("resume = true", 'for generators = ["load"]'),
        (
            'bounds = [{ measure = "cpu_s_per_gib", at_most = 1.0 }]',
            "invalid 'cpu_s_per_gib'; allowed: ",
        ),
        (
            'bounds = [{ measure = "p50_ms", peer = "two", at_most = 1.0 }]',
            "invalid 'two'; allowed: one",
        ),
        (
            'bounds = [{ measure = "p50_ms", workload = "large", at_most = 1.0 }]',
            "invalid 'large'; allowed: small",
        ),
    ],
)
def test_wrong_workload_is_an_error_with_its_reason(tmp_path, more, message):
    with pytest.raises(TableError) as error:
        workloads(tmp_path, WORKLOAD + more)
    assert message in str(error.value)


def test_selection_accepts_names_and_prefixes_in_table_order():
    table = {"h3-a": 1, "h3-b": 2, "h2-a": 3}
    assert select(table, "h2-a,h3-*", "workload") == [1, 2, 3]
    assert select(table, None, "workload") == [1, 2, 3]
    with pytest.raises(TableError, match="unknown workload 'h1'"):
        select(table, "h1", "workload")


def test_contestant_without_its_requirements_names_the_missing_one(tmp_path):
    one = contestants(tmp_path, CONTESTANT + 'requires = ["{target}/library"]\n')["one"]
    assert one.lacks(tmp_path) == "library not found: set PRONGHORN_BENCH_ONE to its path"
    (tmp_path / "library").mkdir()
    assert one.lacks(tmp_path) is None


def test_program_variable_with_a_wrong_path_is_an_error(tmp_path, monkeypatch):
    one = contestants(tmp_path)["one"]
    monkeypatch.delenv("PRONGHORN_BENCH_ONE", raising=False)
    assert one.program(tmp_path) is None
    assert one.why_absent() == "set PRONGHORN_BENCH_ONE to its path"
    monkeypatch.setenv("PRONGHORN_BENCH_ONE", str(tmp_path / "nowhere"))
    with pytest.raises(TableError, match="program not found"):
        one.program(tmp_path)
