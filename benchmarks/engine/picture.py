"""The picture: how long each side took, a panel a workload."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.engine.findings import Findings
from benchmarks.pictures import INK, MARK, SOFT


def draw_engine(path: Path, found: Sequence[Findings]) -> None:
    """Output tokens a second: the median as a bar, each repeat as a point."""
    figure = Figure(figsize=(8, 0.6 + sum(0.45 + 0.3 * len(each.runs) for each in found)), layout="constrained")
    FigureCanvasAgg(figure)
    heights = [1.5 + len(each.runs) for each in found]
    panels = figure.subplots(len(found), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, each in zip(panels, found, strict=True):
        _draw_panel(axes, each)
    panels[-1].set_xlabel("output tokens a second (bar: median, points: repeats)")
    figure.suptitle("One worker of the fleet, and the bare engine fed in other ways", x=0.01, ha="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _draw_panel(axes: Axes, found: Findings) -> None:
    rates = {side: [run.rate for run in runs] for side, runs in found.runs.items()}
    medians = [statistics.median(each) for each in rates.values()]
    axes.barh(list(rates), medians, color=[INK, *(SOFT for _ in medians[1:])])
    for place, (median, each) in enumerate(zip(medians, rates.values(), strict=True)):
        axes.plot(each, [place] * len(each), "o", color=MARK, markersize=3)
        axes.text(max(medians) / 50, place, f"{median:.0f}", va="center", color=MARK if place else "white")
    axes.invert_yaxis()
    axes.set_title(f"{found.workload.name}: {found.rows:,} rows, {found.workload.what}", loc="left", fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
