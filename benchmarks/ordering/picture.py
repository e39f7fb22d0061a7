"""The picture of the ordering benchmark, for `docs/`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.pictures import INK, SOFT


def draw_ordering(path: Path, ratios: Mapping[str, Sequence[float]]) -> None:
    """The time of a job in another order, as a share of its time in the input's: the median, and each repeat."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    names = list(ratios)
    medians = [sorted(ratios[name])[len(ratios[name]) // 2] for name in names]
    axes.barh(names, medians, color=[INK if median < 1 else SOFT for median in medians])
    for place, name in enumerate(names):
        axes.plot(ratios[name], [place] * len(ratios[name]), "o", color="#222222", markersize=3)
    axes.axvline(1.0, color="#222222", linestyle="--", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("time, as a share of that in the input's order (bar: median, points: repeats)")
    axes.set_title("What another order of work brings", loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
