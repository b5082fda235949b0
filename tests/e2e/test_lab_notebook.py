"""The lab's notebook runs from start to end, and its results match the lab's own tables."""

import copy
import json
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "lab.ipynb"
LAB = ROOT / "packages" / "lab"
RECORDED = LAB / "test" / "fixtures" / "campaign"
BLOCKS = 10
# As a fraction of the interval's width. Each side draws its own resamples; the lab's ends are
# resamples themselves, not interpolated between two.
INTERVAL_TOLERANCE = 0.05
# The notebook's results, in a cell after its last.
TELL = """
print(json.dumps({
    "table": json.loads(table.reset_index().to_json(orient="records", double_precision=15)),
    "ratios": json.loads(ratios.to_json(orient="records", double_precision=15)),
    "links": json.loads(links.to_json(orient="records")),
    "loads": len(loads),
}))
"""


@pytest.fixture
def quiet_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keeps the user's settings out, and the test's files away from the user's."""
    # Not pytest's own folder: a socket's path has room for 107 bytes only.
    home = tempfile.mkdtemp(prefix="notebook-")
    for name in ["IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"]:
        monkeypatch.setenv(name, f"{home}/{name.lower()}")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    yield
    shutil.rmtree(home)


def run_notebook(
    folder: Path | None, monkeypatch: pytest.MonkeyPatch, cwd: Path = NOTEBOOK.parent
) -> dict[str, Any]:
    if folder is None:
        monkeypatch.delenv("PRONGHORN_LAB_RESULTS", raising=False)
    else:
        monkeypatch.setenv("PRONGHORN_LAB_RESULTS", str(folder))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(TELL))
    # Unix sockets: no port that another test may use.
    sockets = Path(os.environ["JUPYTER_RUNTIME_DIR"])
    sockets.mkdir()
    kernel = AsyncKernelManager(connection_file=str(sockets / "kernel.json"), transport="ipc")
    client = NotebookClient(
        notebook, km=kernel, timeout=100, resources={"metadata": {"path": str(cwd)}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    drawings = [output for output in outputs if "image/png" in output.get("data", {})]
    return {"drawings": len(drawings)} | json.loads(notebook.cells[-1].outputs[0]["text"])


def generated(folder: Path) -> Path:
    """Makes ten blocks with their own times; `h3` has a load that did not complete, and an invalid
    one.

    In one block the machine was starved.
    """
    folder.mkdir(parents=True)
    campaign = json.loads((RECORDED / "campaign.json").read_text())
    (folder / "campaign.json").write_text(
        json.dumps(campaign | {"blocks": {"min": BLOCKS, "max": BLOCKS}})
    )
    recorded = [json.loads(line) for line in (RECORDED / "samples.jsonl").read_text().splitlines()]
    rng = np.random.default_rng(20261122)
    lines = [sample for sample in recorded if sample["block"] == 0]
    for block in range(1, BLOCKS + 1):
        shared = rng.normal(0, 0.2)
        for like in (sample for sample in recorded if sample["block"] == 1):
            sample = copy.deepcopy(like) | {"block": block, "load": len(lines) + 1}
            factor = {"h1": 1.2, "h2": 1.0, "h3": 0.8}[sample["arm"]]
            sample["times"]["load"] = float(factor * math.exp(shared + rng.normal(0, 0.1)))
            if sample["arm"] == "h3" and block == 4:
                sample |= {"outcome": "timeout", "reason": "no load event in 30 s", "times": {}}
            if sample["arm"] == "h3" and block == 7:
                sample |= {"valid": False, "invalidReasons": ["the link missed its deadlines"]}
            if block == 8:
                sample["machine"] = {
                    "cores": 2,
                    "seconds": 1,
                    "idleShare": 0,
                    "stealShare": 0,
                    "othersShare": 0.5,
                }
            lines.append(sample)
    (folder / "samples.jsonl").write_text("".join(f"{json.dumps(sample)}\n" for sample in lines))
    return folder


def report(folder: Path) -> None:
    run = subprocess.run(
        ["node", str(LAB / "dist" / "cli.js"), "report", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr


def table_of(folder: Path) -> dict[tuple[str, ...], dict[str, str]]:
    """Parses the first table of table.md, by profile and arm."""
    parts = (folder / "table.md").read_text().split("\n\n")
    # Before it is the list of arms that did not always load the page.
    lines = next(part for part in parts if part.startswith("| profile")).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows = [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]
    return {(row["profile"], row["arm"]): row for row in rows}


def shown(value: float | None) -> str:
    """Reads a figure of the lab's table; JSON has no infinite numbers."""
    return "none" if value is None else f"{value:.4f}"


@pytest.mark.usefixtures("quiet_home")
def test_notebook_agrees_with_the_tables_of_the_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = generated(tmp_path / "campaign")
    report(folder)
    said = run_notebook(folder, monkeypatch)
    assert said["loads"] == 3 * BLOCKS - 1 - 3
    # The violin plots, and a waterfall of each arm.
    assert said["drawings"] == 1 + 3

    table = table_of(folder)
    assert len(said["table"]) == len(table) == 3
    for row in said["table"]:
        theirs = table[row["profile"], row["arm"]]
        for name in ["median", "p90", "p99", "min", "max"]:
            assert shown(row[name]) == theirs[name], (row["arm"], name)
        assert shown(row["mean"]) == theirs["mean"].removesuffix("\\*").removesuffix("*"), row[
            "arm"
        ]
        assert [str(row["n"]), str(row["completed"])] == [theirs["n"], theirs["completed"]], row[
            "arm"
        ]

    comparisons = json.loads((folder / "comparisons.json").read_text())["comparisons"]
    loads = {one["arm"]: one for one in comparisons if one["metric"] == "load"}
    assert sorted(loads) == ["h2", "h3"]
    for row in said["ratios"]:
        theirs = loads[row["arm"]]
        assert row["blocks"] == theirs["blocks"]
        assert row["ratio"] == pytest.approx(theirs["medianRatio"]["value"], rel=1e-9)
    interval = loads["h2"]["medianRatio"]["interval"]
    [own] = [row for row in said["ratios"] if row["arm"] == "h2"]
    near = INTERVAL_TOLERANCE * (interval["high"] - interval["low"])
    assert own["low"] == pytest.approx(interval["low"], abs=near)
    assert own["high"] == pytest.approx(interval["high"], abs=near)


@pytest.mark.usefixtures("quiet_home")
def test_notebook_works_with_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    said = run_notebook(RECORDED, monkeypatch)
    assert said["loads"] == 3
    assert [(row["blocks"], row["low"], row["high"]) for row in said["ratios"]] == [
        (1, None, None)
    ] * 2
    assert [row["direction"] for row in said["links"]] == ["up", "down"]


@pytest.mark.usefixtures("quiet_home")
def test_notebook_opens_the_latest_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for age, name in enumerate(["newest", "older", "oldest"]):
        folder = tmp_path / "lab-results" / name
        shutil.copytree(RECORDED, folder)
        if name != "newest":
            (folder / "samples.jsonl").write_text("")
        written = 1_700_000_000 - age
        os.utime(folder / "campaign.json", (written, written))
    below = tmp_path / "notebooks"
    below.mkdir()
    assert run_notebook(None, monkeypatch, cwd=below)["loads"] == 3


def test_notebook_is_committed_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    ran = [
        cell.id
        for cell in notebook.cells
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count)
    ]
    assert ran == []
