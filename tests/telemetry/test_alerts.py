"""The alert rules: they parse, say what to do, and rest on metrics that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from holdfast.telemetry.metrics import METRICS

FILE = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml"
RULES = [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]
WORDS = {"sum", "max", "by", "rate", "increase", "deriv", "absent", "and", "or"}
WORDS |= {"histogram_quantile", "le"}
LABELS = {label for metric in METRICS.values() for label in metric.labels}


def unknown_names(expression: str) -> set[str]:
    """Return the names in an expression that no scrape has."""
    without_values = re.sub(r"\[\w+\]|\"\w+\"", "", expression)
    names = set(re.findall(r"\b[a-z][a-z_]+\b", without_values)) - WORDS - LABELS
    samples = {f"{name}_bucket" for name, one in METRICS.items() if one.kind == "histogram"}
    return names - set(METRICS) - samples


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_is_whole_and_its_metrics_exist(rule):
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert rule["annotations"].keys() == {"summary", "action", "runbook_url"}
    page = rule["annotations"]["runbook_url"]
    assert re.fullmatch(r"docs/runbook/[a-z0-9_-]+\.md", page)
    assert (FILE.parents[2] / page).is_file()
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
    assert unknown_names(rule["expr"]) == set()
    assert rule["expr"].count("(") == rule["expr"].count(")")
    for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
        used = [one for name, one in METRICS.items() if name in rule["expr"]]
        assert any(label in one.labels for one in used), f"nothing has a label {label}"


def test_a_name_that_does_not_exist_is_noticed():
    assert unknown_names("rate(queue_jobs_ded_total[5m]) > 0") == {"queue_jobs_ded_total"}
    assert unknown_names("outbox_lag_total > 0") == {"outbox_lag_total"}


def test_what_was_asked_for_is_there():
    rules = " ".join(rule["expr"] for rule in RULES)
    for name in (
        "outbox_oldest_age_seconds",
        "terminal_failed_total",
        "stuck_processing_events",
        "holdfast_late_acks_refused_total",
        "holdfast_history_backlog",
        "holdfast_event_loop_lag_seconds",
    ):
        assert name in rules
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
