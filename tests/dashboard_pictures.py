"""A plain picture of a dashboard, drawn from what a real Prometheus answers: there is no Grafana in tests."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from tests.dashboards import Dashboard, Query, legend_of
from tests.prometheus_server import Prometheus

PICTURES = "DASHBOARD_PICTURES"
"""Names a folder for pictures of the dashboards; unset: none are drawn."""
COLUMN_IN, LINE_IN = 0.55, 0.26
DOTS_PER_IN = 80
COLOURS = 64
MOST_SERIES = 6
"""So many names a panel; the largest go first."""


def draw(dashboard: Dashboard, prometheus: Prometheus, *, since: float, until: float, into: Path) -> None:
    """Draw all panels of `dashboard` as they lie in it, with what they showed between two times of day."""
    panels = dashboard.panels()
    lines = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = Figure(figsize=(24 * COLUMN_IN, lines * LINE_IN), dpi=DOTS_PER_IN)
    variables = {variable["name"]: ".*" for variable in dashboard.content["templating"]["list"]}
    for panel in panels:
        queries = [query for query in dashboard.queries() if query.panel == panel["title"]]
        series = {
            legend: points
            for query in queries
            for legend, points in answers(prometheus, dashboard, query, variables, since=since, until=until)
        }
        draw_panel(figure.add_axes(place_of(panel, lines)), panel, series, since=since, until=until)
    for row in dashboard.content["panels"]:
        if row["type"] == "row":
            figure.text(0.004, 1 - (row["gridPos"]["y"] + 0.75) / lines, row["title"], fontsize=9, weight="bold")
    figure.savefig(into)
    with Image.open(into) as picture:
        picture.convert("RGB").quantize(COLOURS).save(into, optimize=True)


def answers(
    prometheus: Prometheus,
    dashboard: Dashboard,
    query: Query,
    variables: dict[str, str],
    *,
    since: float,
    until: float,
) -> list[tuple[str, list[tuple[float, float]]]]:
    """Legend and points of each series of `query`."""
    asked = dashboard.expression(query, variables)
    found = prometheus.ask("query_range", query=asked, start=since, end=until, step=1)["result"]
    return [
        (legend_of(query, one["metric"]), [(float(at), float(value)) for at, value in one["values"]]) for one in found
    ]


def place_of(panel: dict[str, Any], lines: int) -> tuple[float, float, float, float]:
    """Left, bottom, width and height of a panel's axes, as shares of the picture."""
    place = panel["gridPos"]
    left, top = place["x"] / 24, place["y"] / lines
    width, height = place["w"] / 24, place["h"] / lines
    margin = 1.6 / 24 if panel["type"] == "bargauge" else 0.7 / 24
    return left + margin, 1 - top - height + 1.0 / lines, width - margin - 0.3 / 24, height - 2.2 / lines


def draw_panel(
    axes: Axes, panel: dict[str, Any], series: dict[str, list[tuple[float, float]]], *, since: float, until: float
) -> None:
    """One panel."""
    axes.set_title(panel["title"], fontsize=8, loc="left", pad=3)
    axes.tick_params(labelsize=6, length=2, pad=1)
    if panel["type"] == "timeseries":
        draw_lines(axes, series, since=since, until=until)
    elif panel["type"] == "bargauge":
        last = {legend: points[-1][1] for legend, points in series.items() if points}
        axes.barh(list(last), list(last.values()), color="tab:orange")
    else:
        axes.set_axis_off()
        points = next(iter(series.values()), [])
        text = as_text(points[-1][1]) if points else "no data"
        axes.text(0.5, 0.4, text, fontsize=14, ha="center", va="center", transform=axes.transAxes)


def draw_lines(axes: Axes, series: dict[str, list[tuple[float, float]]], *, since: float, until: float) -> None:
    """Lines over seconds, the largest named."""
    peaks = {legend: max((value for _, value in points), default=0.0) for legend, points in series.items()}
    for number, legend in enumerate(sorted(peaks, key=peaks.__getitem__, reverse=True)):
        label = legend if number < MOST_SERIES else None
        times, values = zip(*series[legend], strict=True)
        axes.plot([at - since for at in times], values, linewidth=0.9, label=label)
    axes.set_xlim(0, until - since)
    axes.grid(linewidth=0.3)
    if series:
        axes.legend(fontsize=5.5, loc="upper left", framealpha=0.6, borderpad=0.2, labelspacing=0.2)
    if all(peak >= 0 for peak in peaks.values()) and min((v for p in series.values() for _, v in p), default=0) >= 0:
        axes.set_ylim(bottom=0)


def as_text(value: float) -> str:
    """`value` in three digits, or in whole numbers."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
