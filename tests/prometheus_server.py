"""A real Prometheus for tests, on loopback with the project's own configuration and rules."""

import json
import math
import re
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
WINDOW_S_PER_MINUTE = 5
"""In hurried rules: a window of a minute must hold samples enough for a rate."""
FOR_S_PER_MINUTE = 1


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Prometheus:
    """Scrapes every second what `discovery` (a URL) names, by `prometheus/prometheus.yml`."""

    def __init__(self, directory: Path, discovery: str, *, hurried: bool = False) -> None:
        """`hurried`: the windows and waits of rules last seconds, not minutes."""
        self.url = f"http://127.0.0.1:{free_port()}"
        config = yaml.safe_load((ROOT / "prometheus" / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": f"{INTERVAL_S}s", "evaluation_interval": f"{INTERVAL_S}s"}
        (job,) = config["scrape_configs"]
        job["http_sd_configs"] = [{"url": discovery, "refresh_interval": f"{INTERVAL_S}s"}]
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        rules = (ROOT / "prometheus" / "rules.yml").read_text()
        (directory / "rules.yml").write_text(hurry(rules) if hurried else rules)
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

    def now(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series that `query` gives now, NaN left out."""
        found = self.ask("query", query=query)["result"]
        series = [(one["metric"], float(one["value"][1])) for one in found]
        return [(labels, value) for labels, value in series if math.isfinite(value)]

    def values(self, query: str, *, since: float, until: float) -> list[float]:
        """Every number that `query` gave between two times of day, NaN left out."""
        series = self.ask("query_range", query=query, start=since, end=until, step=INTERVAL_S)["result"]
        numbers = [float(value) for one in series for _, value in one["values"]]
        return [number for number in numbers if math.isfinite(number)]

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait()


def hurry(rules: str) -> str:
    """`rules` with their durations in seconds: those of `for`, and those of windows and offsets."""
    waiting = re.sub(r"(?<=for: )(\d+)m", lambda found: f"{int(found[1]) * FOR_S_PER_MINUTE}s", rules)
    return re.sub(
        r"(?<=\[)(\d+)m\b|(?<=offset )(\d+)m\b",
        lambda found: f"{int(found[1] or found[2]) * WINDOW_S_PER_MINUTE}s",
        waiting,
    )
