"""The alert rules, run by promtool: each fires when it must, and not when it must not."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from .promtool import promtool

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
TESTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]


def ran(*arguments: str, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [promtool(), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_prometheus_accepts_the_rules():
    found = ran("check", "rules", "alerts.yaml")
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{len(RULES)} rules found" in found.stdout


def test_every_alert_fires_when_it_must_and_not_otherwise():
    found = ran("test", "rules", "alerts_test.yaml")
    assert found.returncode == 0, found.stdout + found.stderr


def expectations() -> list[tuple[str, bool]]:
    """Return which alerts are expected to fire, and which not to."""
    found: list[tuple[str, bool]] = []
    for test in TESTS:
        found += [
            (case["alertname"], bool(case["exp_alerts"]))
            for case in test.get("alert_rule_test", ())
        ]
        for case in test.get("promql_expr_test", ()):
            name = re.search(r'alertname="(\w+)"', case["expr"])
            assert name is not None
            found.append((name[1], bool(case["exp_samples"])))
    return found


@pytest.mark.parametrize("alert", [rule["alert"] for rule in RULES])
def test_both_ways_are_tested(alert: str):
    assert {fires for name, fires in expectations() if name == alert} == {True, False}


def test_what_is_tested_exists():
    assert {name for name, _fires in expectations()} == {rule["alert"] for rule in RULES}


def breaks(folder: Path, change: Callable[[dict[str, Any]], object]) -> str:
    """Return what promtool says of the tests when every rule was changed so."""
    shutil.copy(FOLDER / "alerts_test.yaml", folder)
    whole = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    for group in whole["groups"]:
        for rule in group["rules"]:
            change(rule)
    (folder / "alerts.yaml").write_text(yaml.safe_dump(whole))
    found = ran("test", "rules", "alerts_test.yaml", folder=folder)
    assert found.returncode != 0
    return found.stdout + found.stderr


@pytest.mark.parametrize("expression", ["vector(1) > 2", "vector(1)"], ids=["never", "always"])
def test_control_rules_that_never_or_always_fire_are_noticed(tmp_path: Path, expression: str):
    said = breaks(tmp_path, lambda rule: rule.update(expr=expression, **{"for": "0s"}))
    assert [rule["alert"] for rule in RULES if rule["alert"] not in said] == []


def test_control_without_their_waiting_time_alerts_come_too_early(tmp_path: Path):
    said = breaks(tmp_path, lambda rule: rule.pop("for", None))
    assert [rule["alert"] for rule in RULES if "for" in rule and rule["alert"] not in said] == []
