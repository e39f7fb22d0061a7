"""The dashboards of `grafana/`, read as Grafana reads them and asked of a real Prometheus."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.processes import ROOT
from tests.prometheus_server import INTERVAL_S, Prometheus

FOLDER = ROOT / "grafana" / "dashboards"
NAMES = ("fleet", "job", "engine", "redis")
RATE_WINDOW = "5s"


class Query(NamedTuple):
    """One query of one panel, variables not yet replaced."""

    panel: str
    expression: str
    legend: str


class Dashboard:
    """One dashboard file."""

    def __init__(self, name: str) -> None:
        self.path: Path = FOLDER / f"{name}.json"
        self.content: dict[str, Any] = json.loads(self.path.read_text())

    def panels(self) -> list[dict[str, Any]]:
        """All panels, those inside rows too; rows themselves left out."""
        found = []
        for panel in self.content["panels"]:
            found += [*panel.get("panels", []), *([] if panel["type"] == "row" else [panel])]
        return found

    def queries(self) -> Iterator[Query]:
        """Those of every panel."""
        for panel in self.panels():
            for target in panel["targets"]:
                yield Query(panel["title"], target["expr"], target["legendFormat"])

    def expression(self, query: Query, variables: dict[str, str]) -> str:
        """What `query` asks, with Grafana's own variables and `variables` replaced."""
        known = {"__rate_interval": RATE_WINDOW, "__interval": f"{INTERVAL_S}s", "__range": "60s", **variables}
        replaced = re.sub(r"\$\{?(\w+)\}?", lambda found: known[found.group(1)], query.expression)
        assert "$" not in replaced
        return replaced

    def variables(self, prometheus: Prometheus, *, since: float) -> dict[str, str]:
        """Each variable with all values that Prometheus gives for it, as Grafana joins them."""
        values = {}
        for variable in self.content["templating"]["list"]:
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert found, variable
            series = prometheus.ask("series", **{"match[]": found.group(1)}, start=since)
            labels = sorted({one[found.group(2)] for one in series})
            assert labels, f"no value for ${variable['name']}"
            values[variable["name"]] = "|".join(map(re.escape, labels)).replace("\\", "\\\\")
        return values

    def all_values(self, prometheus: Prometheus, *, since: float, until: float) -> dict[Query, list[float]]:
        """What each query gave between two times of day."""
        variables = self.variables(prometheus, since=since)
        return {
            query: prometheus.values(self.expression(query, variables), since=since, until=until)
            for query in self.queries()
        }

    def shown(self, prometheus: Prometheus, panel: str) -> dict[str, float]:
        """What `panel` shows now, by legend, of all that its variables offer."""
        return {
            legend_of(query, labels): value
            for query in self.queries()
            if query.panel == panel
            for labels, value in prometheus.now(
                self.expression(query, {variable["name"]: ".*" for variable in self.content["templating"]["list"]})
            )
        }


def legend_of(query: Query, labels: dict[str, str]) -> str:
    """How Grafana names a series with `labels`."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found.group(1), ""), query.legend)
