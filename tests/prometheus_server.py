"""A real Prometheus for tests, on loopback with the project's own configuration, and the dashboard it must feed."""

import json
import math
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.processes import ROOT
from tests.waiting import wait_until

INTERVAL_S = 1
RATE_WINDOW = "5s"


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Prometheus:
    """Scrapes every second what `discovery` (a URL) names, by `prometheus/prometheus.yml`."""

    def __init__(self, directory: Path, discovery: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        config = yaml.safe_load((ROOT / "prometheus" / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": f"{INTERVAL_S}s", "evaluation_interval": f"{INTERVAL_S}s"}
        (job,) = config["scrape_configs"]
        job["http_sd_configs"] = [{"url": discovery, "refresh_interval": f"{INTERVAL_S}s"}]
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        shutil.copy(ROOT / "prometheus" / "rules.yml", directory)
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
                "--log.level=warn",
            ]
        )
        wait_until(self.ready, timeout_s=20, description="Prometheus is ready")

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(self.url + "/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, path: str, **parameters: object) -> Any:
        """The `data` of one call of its API."""
        with urllib.request.urlopen(
            f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}", timeout=10
        ) as answer:
            read = json.load(answer)
        assert read["status"] == "success", read
        return read["data"]

    def up(self) -> set[str]:
        """Roles whose last scrape went well."""
        return {s["metric"]["role"] for s in self.ask("query", query="up")["result"] if s["value"][1] == "1"}

    def values(self, query: str, *, since: float, until: float) -> list[float]:
        """Every number that `query` gave between two times of day, NaN left out."""
        series = self.ask("query_range", query=query, start=since, end=until, step=INTERVAL_S)["result"]
        numbers = [float(value) for one in series for _, value in one["values"]]
        return [number for number in numbers if math.isfinite(number)]

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait()


class Dashboard:
    """One dashboard file, read as Grafana reads it."""

    def __init__(self, path: Path) -> None:
        self.content = json.loads(path.read_text())

    def panels(self) -> list[dict[str, Any]]:
        """All panels, those inside rows too; rows themselves left out."""
        found = []
        for panel in self.content["panels"]:
            found += [*panel.get("panels", []), *([] if panel["type"] == "row" else [panel])]
        return found

    def queries(self) -> list[tuple[str, str]]:
        """(panel title, expression) of every query, variables not yet replaced."""
        return [(panel["title"], target["expr"]) for panel in self.panels() for target in panel["targets"]]

    def replaced(self, expression: str, variables: dict[str, str]) -> str:
        """`expression` with Grafana's own variables and `variables` replaced."""
        known = {"__rate_interval": RATE_WINDOW, "__interval": f"{INTERVAL_S}s", "__range": "60s", **variables}
        replaced = re.sub(r"\$\{?(\w+)\}?", lambda found: known[found.group(1)], expression)
        assert "$" not in replaced
        return replaced

    def variables(self, prometheus: Prometheus, *, since: float) -> dict[str, str]:
        """Each variable with all values that Prometheus gives for it, as Grafana joins them."""
        values = {}
        for variable in self.content["templating"]["list"]:
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
            assert found, variable
            series = prometheus.ask("series", **{"match[]": found.group(1)}, start=since)
            labels = sorted({one[found.group(2)] for one in series})
            assert labels, f"no value for ${variable['name']}"
            values[variable["name"]] = "|".join(map(re.escape, labels)).replace("\\", "\\\\")
        return values
