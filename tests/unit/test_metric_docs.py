"""The tables of docs/operations.md say of every metric what the code says of it."""

import re
from pathlib import Path
from types import ModuleType

import pytest
from prometheus_client.metrics import MetricWrapperBase

import producer.metrics
import worker.metrics

PAGE = Path(__file__).parent.parent.parent / "docs" / "operations.md"
DO = " When it is high, do this: "


def metrics_of(module: ModuleType) -> list[MetricWrapperBase]:
    """The metrics that `module` declares."""
    return [value for value in vars(module).values() if isinstance(value, MetricWrapperBase)]


def row_of(metric: MetricWrapperBase) -> str:
    """The row that the page must have for `metric`."""
    (family,) = metric.describe()
    name = family.name + ("_total" if family.type == "counter" else "")
    labels = ", ".join(f"`{label}`" for label in metric._labelnames)
    what, _, advice = family.documentation.partition(DO)
    return f"| `{name}` | {family.type} | {labels} | {what} | {advice[:1].upper()}{advice[1:]} |"


@pytest.mark.parametrize("module", [worker.metrics, producer.metrics], ids=lambda module: module.__name__)
def test_every_metric_has_its_row(module: ModuleType) -> None:
    metrics = metrics_of(module)
    assert len(metrics) >= 9
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert [row for metric in metrics if (row := row_of(metric)) not in lines] == []


def test_no_row_is_without_a_metric() -> None:
    rows = re.findall(r"^\| `(bakehouse_\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == len(set(rows)) == len(metrics_of(worker.metrics)) + len(metrics_of(producer.metrics))


def test_every_metric_has_a_unit_in_its_name() -> None:
    units = ("_seconds", "_bytes", "_requests", "_holds", "_workers", "_requests_in_flight", "_requests_target")
    for metric in metrics_of(worker.metrics) + metrics_of(producer.metrics):
        (family,) = metric.describe()
        assert family.type == "counter" or family.name.endswith(units), family.name
