"""The picture of the scaling benchmark, for `docs/`."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter

from benchmarks.pictures import INK, SOFT
from benchmarks.scale.figures import Figures
from benchmarks.scale.spans import running_over_time, tail_begins_s


def draw_scale(path: Path, steady: Sequence[Figures]) -> None:
    """How speed grows with the fleet, and how the largest fleet runs dry: each beside the perfect dispatcher."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    speed, end = figure.subplots(1, 2)
    for axes in (speed, end):
        axes.spines[["top", "right"]].set_visible(False)
    _draw_speed(speed, steady)
    _draw_end(end, steady[-1])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _draw_speed(axes: Axes, steady: Sequence[Figures]) -> None:
    sizes, one = [len(each.workers) for each in steady], steady[0]
    perfect = [each.perfect_tokens_per_s / one.perfect_tokens_per_s for each in steady]
    axes.plot(sizes, perfect, color=SOFT, label="perfect dispatcher")
    axes.plot(sizes, [each.tokens_per_s / one.tokens_per_s for each in steady], "o", color=INK, label="fleet")
    for set_scale, axis in ((axes.set_xscale, axes.xaxis), (axes.set_yscale, axes.yaxis)):
        set_scale("log", base=2)
        axis.set_ticks(sizes)
        axis.set_major_formatter(FormatStrFormatter("%d"))
    axes.set_xlabel("workers")
    axes.set_title("Times as fast as one worker", loc="left")
    axes.legend(loc="upper left")


def _draw_end(axes: Axes, whole: Figures) -> None:
    for spans, colour, name in ((whole.perfect, SOFT, "perfect dispatcher"), (whole.spans, INK, "fleet")):
        times_s, running = zip(*running_over_time(spans), strict=True)
        axes.step(times_s, running, where="post", color=colour, label=name)
    axes.set_xlim(left=tail_begins_s(whole.perfect) - 1.0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_title(f"Places busy at the end, {len(whole.workers)} workers", loc="left")
    axes.legend(loc="upper right")
