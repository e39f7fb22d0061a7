"""A metrics port as Prometheus and a container manager ask it."""

import urllib.error
import urllib.request

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families


def get(port: int, path: str) -> tuple[int, str]:
    """Status and body of GET `path`; 0 where nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except urllib.error.URLError:
        return 0, ""


def probes(port: int) -> tuple[int, int]:
    """What `/healthz` and `/readyz` answer."""
    return get(port, "/healthz")[0], get(port, "/readyz")[0]


def families(port: int, *, prefix: str = "bakehouse_") -> dict[str, Metric]:
    """The metrics by name, as Prometheus' own parser reads them."""
    read = text_string_to_metric_families(get(port, "/metrics")[1])
    return {family.name: family for family in read if family.name.startswith(prefix)}


def value(port: int, name: str, **labels: str) -> float:
    """The sum of all series of the family `name` that have `labels`, without a histogram's parts."""
    family = families(port)[name]
    names = {name, f"{name}_total"}
    return sum(s.value for s in family.samples if s.name in names and labels.items() <= s.labels.items())
