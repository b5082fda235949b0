"""One plot for each workload: each contestant's median, with a whisker from the lowest to the
highest round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .report import TITLES
from .summary import Cell, Spread
from .tables import SUBJECT, Workload

OURS, THEIRS = "#b5541c", "#8a94a6"


def draw(
    table: Mapping[Cell, Mapping[str, Spread]],
    workloads: Sequence[Workload],
    generators: Sequence[str],
    folder: Path,
) -> list[str]:
    """Draws the plots; returns the names of the files."""
    import matplotlib

    matplotlib.use("svg")
    # Text stays text, and the same figures give the same file.
    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "pronghorn", "font.size": 9}
    )
    names = []
    for workload in workloads:
        panels = [generator for generator in workload.generators if generator in generators]
        panels = [generator for generator in panels if bars(table, workload, generator)]
        if panels:
            name = f"{workload.name}.svg"
            draw_one(table, workload, panels, folder / name)
            names.append(name)
    return names


def bars(
    table: Mapping[Cell, Mapping[str, Spread]], workload: Workload, generator: str
) -> list[tuple[str, Spread]]:
    measure = workload.measures[0]
    found = [
        (name, measures[measure])
        for (load, by, name), measures in table.items()
        if (load, by) == (workload.name, generator) and measure in measures
    ]
    return sorted(found, key=lambda bar: bar[1].median, reverse=True)


def draw_one(
    table: Mapping[Cell, Mapping[str, Spread]],
    workload: Workload,
    panels: Sequence[str],
    path: Path,
) -> None:
    from matplotlib import pyplot

    height = 0.9 + 0.32 * max(len(bars(table, workload, generator)) for generator in panels)
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(4.6 * len(panels), height), squeeze=False
    )
    for axis, generator in zip(axes[0], panels, strict=True):
        found = bars(table, workload, generator)
        medians = [spread.median for _, spread in found]
        whiskers = [
            [spread.median - spread.low for _, spread in found],
            [spread.high - spread.median for _, spread in found],
        ]
        colours = [OURS if name == SUBJECT else THEIRS for name, _ in found]
        axis.barh(
            [name for name, _ in found],
            medians,
            xerr=whiskers,
            color=colours,
            ecolor="#333",
            capsize=2,
            height=0.7,
        )
        axis.set_title(f"{workload.name} by {generator}")
        axis.set_xlabel(TITLES[workload.measures[0]])
        axis.set_xlim(left=0)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
