"""Pictures of what benchmarks measured, for `docs/`."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.memory.follower import Sample as MemorySample
from benchmarks.report import Compared
from benchmarks.trace import Sample

INK, SOFT, MARK = "#8c4a1f", "#d9b48f", "#222222"


def draw_trace(path: Path, samples: Sequence[Sample], *, concurrency: int) -> None:
    """Requests in flight over time, against the engine's concurrency."""
    figure, axes = _figure()
    began_s = samples[0].t_s
    axes.plot([s.t_s - began_s for s in samples], [s.in_flight for s in samples], color=INK, linewidth=1)
    axes.axhline(concurrency, color=MARK, linestyle="--", linewidth=1, label="the engine's concurrency")
    left = [s.t_s - began_s for s in samples if s.left >= 2 * concurrency]
    axes.axvline(left[-1], color=SOFT, label="twice that many rows left")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("requests in flight")
    axes.set_title("A worker's engine stays full until the job runs out of rows", loc="left")
    axes.legend(loc="lower left")
    _save(figure, path)


def draw_memory(path: Path, samples: Sequence[MemorySample], *, rate: Sequence[tuple[float, float]]) -> None:
    """Memory of each process over the rows done, and below it `rate`: (rows done, requests a second)."""
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    roles = dict.fromkeys(role for sample in samples for role in sample.bytes)
    for role, color in zip(roles, (INK, SOFT, MARK, "#5a7d7c"), strict=False):
        seen = [sample for sample in samples if role in sample.bytes]
        above.plot([s.done / 1e6 for s in seen], [s.bytes[role] / 2**20 for s in seen], color=color, label=role)
    above.set_ylim(bottom=0)
    above.set_ylabel("resident MiB")
    above.set_title("Memory grows by the ids of the lines alone, and the rate stays", loc="left")
    above.legend(loc="center right")
    below.plot([done / 1e6 for done, _ in rate], [per_s for _, per_s in rate], color=INK)
    below.set_ylim(bottom=0)
    below.set_ylabel("requests/s")
    below.set_xlabel("million rows done")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def draw_shares(path: Path, samples: Sequence[tuple[float, tuple[int, ...]]], names: Sequence[str]) -> None:
    """Results a second of each job over time, as a mean of six seconds; `samples`: (seconds, results of each)."""
    figure, axes = _figure()
    for job, (name, color) in enumerate(zip(names, (INK, SOFT, MARK), strict=True)):
        spans = [(before, after) for before, after in zip(samples, samples[6:], strict=False) if after[1][job]]
        rates = [(after[1][job] - before[1][job]) / (after[0] - before[0]) for before, after in spans]
        axes.plot([(before[0] + after[0]) / 2 for before, after in spans], rates, color=color, label=name)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("results a second")
    axes.set_title("Jobs that come and go share the fleet equally", loc="left")
    axes.legend(loc="upper right")
    _save(figure, path)


def draw_rates(path: Path, compared: Compared, *, title: str) -> None:
    """A bar a side as long as its median, with its figure; each repeat as a point."""
    figure, axes = _figure()
    sides = list(compared.repeats)
    axes.barh(sides, list(compared.medians.values()), color=[INK, *[SOFT] * (len(sides) - 1)])
    for place, (side, median) in enumerate(compared.medians.items()):
        axes.plot(compared.repeats[side], [place] * len(compared.repeats[side]), "o", color=MARK, markersize=3)
        farthest = max(median, *compared.repeats[side])
        axes.annotate(f"{median:,.0f}", (farthest, place), xytext=(6, 0), textcoords="offset points", va="center")
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{compared.unit} (bar: median, points: repeats)")
    axes.set_title(title, loc="left")
    _save(figure, path)


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
