"""Dashboards, rules and their pages hang together: names, places, descriptions, links, and what each alert says."""

import re
import shutil
import subprocess
from itertools import chain

import pytest
import yaml

from tests.dashboards import FOLDER, NAMES, Dashboard
from tests.metric_families import all_families
from tests.processes import ROOT

CLIENTS_OWN = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
RULES = yaml.safe_load((ROOT / "prometheus" / "rules.yml").read_text())
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule}
RECORDED = {rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule}
FILES = [path for folder in ("grafana", "prometheus") for path in (ROOT / folder).rglob("*") if path.is_file()]
DASHBOARDS = {name: Dashboard(name) for name in NAMES}

needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not installed (Debian: apt-get install prometheus)"
)
each_dashboard = pytest.mark.parametrize("name", NAMES)


def names_in_code() -> set[str]:
    """Every series name that our metrics can have."""
    names = set()
    for family in all_families():
        is_histogram = family.type == "histogram"
        names |= {family.name} | {f"{family.name}_{part}" for part in ("bucket", "sum", "count") if is_histogram}
    return names


def test_all_dashboards_are_known() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(NAMES)


def test_every_metric_named_exists() -> None:
    assert len(FILES) >= 8
    texts = [path.read_text() for path in FILES]
    named = {name for text in texts for name in re.findall(r"(?<![\w:])(?:bakehouse|process)_\w+", text)}
    assert named - names_in_code() - CLIENTS_OWN == set()
    recorded = {name for text in texts for name in re.findall(r"\b(?:fleet|instance):\w+:\w+", text)}
    assert recorded == RECORDED


def test_every_metric_has_a_panel() -> None:
    shown = " ".join(query.expression for dashboard in DASHBOARDS.values() for query in dashboard.queries())
    assert [family.name for family in all_families() if not re.search(rf"\b{family.name}(_bucket)?\b", shown)] == []


def test_nothing_is_made_up_where_there_is_no_data() -> None:
    """`or vector(0)` hides that a query is wrong, or that nobody is there."""
    assert [path.name for path in FILES if "vector(" in path.read_text()] == []


@each_dashboard
def test_panels_do_not_overlap_and_say_what_to_do(name: str) -> None:
    dashboard = DASHBOARDS[name]
    cells: list[tuple[int, int]] = []
    for panel in dashboard.panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert len(panel["description"]) > 30, panel["title"]
        assert all(each["datasource"]["uid"] == "bakehouse-prometheus" for each in (panel, *panel["targets"]))
        columns = range(place["x"], place["x"] + place["w"])
        cells += [(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])]
    assert len(cells) == len(set(cells))
    panels = dashboard.content["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    titles = [panel["title"] for panel in dashboard.panels()]
    assert sorted(set(titles)) == sorted(titles), "a panel is known by its title"


@each_dashboard
def test_each_dashboard_links_to_the_others(name: str) -> None:
    content = DASHBOARDS[name].content
    assert content["uid"] == f"bakehouse-{name}"
    (link,) = content["links"]
    assert link["type"] == "dashboards"
    assert set(link["tags"]) <= set.intersection(*(set(each.content["tags"]) for each in DASHBOARDS.values()))


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    assert len(ALERTS) >= 7
    page = (ROOT / "docs" / "operations.md").read_text()
    for name, rule in ALERTS.items():
        assert re.fullmatch(r"\d+m", rule["for"]), name
        assert rule["labels"]["severity"] in ("warning", "critical"), name
        assert rule["annotations"].keys() == {"summary", "do", "runbook_url"}, name
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{name.lower()}"
    assert re.findall(r"^### (Bakehouse\w+)$", page, re.M) == list(ALERTS), "each has its page, in their order"


def test_every_alert_is_shown_to_fire_and_not_to_fire() -> None:
    tests = yaml.safe_load((ROOT / "prometheus" / "rules_test.yml").read_text())["tests"]
    cases = list(chain.from_iterable(test["alert_rule_test"] for test in tests))
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == set(ALERTS)
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == set(ALERTS)


@pytest.mark.parametrize(
    "check",
    [("check", "config", "prometheus.yml"), ("check", "config", "compose.yml"), ("test", "rules", "rules_test.yml")],
    ids=" ".join,
)
@needs_promtool
def test_promtool(check: tuple[str, ...]) -> None:
    ended = subprocess.run(["promtool", *check], cwd=ROOT / "prometheus", capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
