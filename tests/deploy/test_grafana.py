"""The dashboards: whole, readable, and every query names metrics and labels that there are."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.telemetry.metrics import METRICS

from .promtool import promtool

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
BOARDS: dict[str, dict[str, Any]] = {
    file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))
}
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, board in BOARDS.items()
    for panel in board["panels"]
    if panel["type"] != "row"
]
UNITS = {"short", "s", "ops", "cpm", "percentunit"}
OF_THE_SCRAPE = {"instance", "job", "le"}
"""Labels that Prometheus adds, or that a histogram has."""
_FUNCTIONS = {"sum", "max", "by", "rate", "increase", "histogram_quantile", "topk"}


def series_of(name: str) -> str | None:
    """Return the metric that a scraped name belongs to."""
    if name in METRICS:
        return name
    family = re.sub(r"_(bucket|sum|count)$", "", name)
    known = METRICS.get(family)
    return family if known is not None and known.kind == "histogram" else None


def problems_of(expression: str, legend: str) -> list[str]:
    """Return what a query asks for that no scrape has."""
    text = re.sub(r"\[[^]]*\]", "", expression)
    labels = set(re.findall(r"(\w+) *[=!]~? *\"", text))
    grouped = ",".join(re.findall(r"by \(([^)]*)\)", text))
    labels |= set(re.findall(r"\w+", grouped))
    labels |= set(re.findall(r"\{\{ *(\w+) *\}\}", legend))
    bare = re.sub(r"\{[^}]*\}|by \([^)]*\)", "", text)
    names = set(re.findall(r"\b[a-z][a-z_]+\b", bare)) - _FUNCTIONS
    wrong = [f"there is no metric {name}" for name in sorted(names) if series_of(name) is None]
    metrics = [METRICS[known] for name in names if (known := series_of(name)) is not None]
    if not metrics:
        wrong.append("it names no metric")
    for label in sorted(labels - OF_THE_SCRAPE):
        wrong += [
            f"{metric.name} has no label {label}"
            for metric in metrics
            if label not in metric.labels
        ]
    return wrong


def test_there_are_the_three():
    assert set(BOARDS) == {"overview", "queue", "failures"}


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_dashboard_is_whole(board: dict[str, Any]):
    assert board["uid"].startswith("holdfast-")
    assert board["title"].startswith("Holdfast: ")
    assert board["description"]
    assert board["schemaVersion"] >= 36
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    variables = {one["name"] for one in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board["panels"]))) - {"__rate_interval"}
    assert used == variables  # every one exists, and none is for nothing


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_panels_stand_side_by_side(board: dict[str, Any]):
    places = [panel["gridPos"] for panel in board["panels"]]
    for one in places:
        assert one["x"] >= 0
        assert one["x"] + one["w"] <= 24
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_says_what_it_shows_in_which_unit(panel: dict[str, Any]):
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["type"] in {"timeseries", "stat"}
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    refs = [target["refId"] for target in panel["targets"]]
    assert refs
    assert len(set(refs)) == len(refs)


@pytest.mark.parametrize("panel", PANELS)
def test_a_query_names_what_there_is(panel: dict[str, Any]):
    for target in panel["targets"]:
        assert problems_of(target["expr"], target["legendFormat"]) == []


@pytest.mark.parametrize(
    ("expression", "legend", "problem"),
    [
        ("sum(queue_dept)", "", "there is no metric queue_dept"),
        ("sum by (task) (queue_depth)", "", "queue_depth has no label task"),
        ('queue_depth{tenant="a"}', "", "queue_depth has no label tenant"),
        ("queue_depth", "{{error_reason}}", "queue_depth has no label error_reason"),
        ("rate(queue_depth_bucket[5m])", "", "there is no metric queue_depth_bucket"),
        ("vector(1)", "", "it names no metric"),
    ],
)
def test_control_a_query_for_nothing_is_noticed(expression: str, legend: str, problem: str):
    assert problem in problems_of(expression, legend)


def test_variables_ask_for_labels_that_there_are():
    for board in BOARDS.values():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"])
                assert found is not None
                assert found[2] in METRICS[found[1]].labels


@pytest.mark.parametrize("broken", [False, True])
def test_prometheus_can_read_every_query(tmp_path: Path, broken: bool):
    panels = [panel for board in BOARDS.values() for panel in board["panels"]]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    if broken:  # the control
        expressions.append("sum(queue_depth")
    rules = [
        {
            "record": f"query:{number}",
            "expr": expression.replace("$__rate_interval", "5m").replace("$queue", "mail"),
        }
        for number, expression in enumerate(expressions)
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    found = subprocess.run(
        [promtool(), "check", "rules", str(file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (found.returncode != 0) is broken, found.stdout + found.stderr
