"""Who worked when, from a job's results: a row of bars a host, the darker the more at once, and what befell each."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

BAR, FAULT, INK = "#c98a5b", "#d8d8d8", "#222222"
BAR_HEIGHT = 0.6


class Span(NamedTuple):
    """From when to when, in seconds since the epoch."""

    began: float
    ended: float


class Fault(NamedTuple):
    """What kept `host` from its work, and when; `ended` is None where it never came back."""

    host: str
    what: str
    began: float
    ended: float | None


def spans_of(results: Iterable[dict[str, Any]]) -> dict[str, list[Span]]:
    """Worker -> when each of its requests ran."""
    spans: dict[str, list[Span]] = {}
    for result in results:
        meta = result["meta"]
        began, ended = (datetime.fromisoformat(meta[name]).timestamp() for name in ("started_at", "finished_at"))
        spans.setdefault(meta["worker"], []).append(Span(began, ended))
    return spans


def draw_who_worked(path: Path, results: Sequence[dict[str, Any]], faults: Sequence[Fault], *, title: str) -> None:
    """A row a host, faults as grey fields with their names; a host without results has them alone."""
    spans = {worker.split("-")[0]: found for worker, found in spans_of(results).items()}
    hosts = sorted(spans) + sorted({fault.host for fault in faults} - set(spans))
    zero = min(span.began for found in spans.values() for span in found)
    end = max(span.ended for found in spans.values() for span in found)
    figure = Figure(figsize=(8, 0.8 + 0.45 * len(hosts)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right", "left"]].set_visible(False)
    for row, host in enumerate(hosts):
        bars = [(began - zero, ended - began) for began, ended in spans.get(host, [])]
        axes.broken_barh(bars, (row - BAR_HEIGHT / 2, BAR_HEIGHT), color=BAR, alpha=0.15, linewidth=0)
    for fault in faults:
        row, began = hosts.index(fault.host), max(0.0, fault.began - zero)
        lasted = (fault.ended or end) - zero - began
        axes.broken_barh(
            [(began, lasted)], (row - 0.45, 0.9), facecolor="none", edgecolor=FAULT, hatch="////", zorder=0
        )
        axes.annotate(fault.what, (began, row), xytext=(3, 0), textcoords="offset points", va="center", color=INK)
    axes.set_yticks(range(len(hosts)), hosts)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, end - zero)
    axes.set_xlabel("seconds")
    axes.set_title(title, loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
