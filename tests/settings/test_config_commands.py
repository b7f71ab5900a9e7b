"""``holdfast config`` without a daemon."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from holdfast.cli.main import main
from holdfast.settings import Settings, formatted, load, plain

from .samples import FIELDS, SAMPLES


def hold(*words: str, **environ: str) -> Result:
    return CliRunner().invoke(main, list(words), env=environ)


def sampled() -> dict[str, str]:
    """An environment that sets everything to something else."""
    names = {f"HOLDFAST_{field.upper()}": text for field, (text, _value) in SAMPLES.items()}
    return {name: text for name, text in names.items() if name != "HOLDFAST_WAL_PATH"}


def test_show_prints_every_setting() -> None:
    result = hold("config", "show")
    assert result.exit_code == 0
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == list(FIELDS)
    assert "lease_seconds: 30s" in result.stdout.splitlines()


def test_what_is_shown_is_a_settings_file_that_says_the_same() -> None:
    for environ in ({}, sampled()):
        shown = hold("config", "show", "--origin", **environ).stdout
        Path("again.yaml").write_text(shown)
        assert load("again.yaml", environ={}).settings == load(environ=environ).settings


@hypothesis_settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seconds=st.floats(0.001, 3_600),
    # Not a URL: the password of one is masked, whatever the field.
    name=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20).filter(
        lambda name: "://" not in name
    ),
)
@example(seconds=1.0, name=".0")
def test_every_value_is_written_so_that_it_is_read_again(seconds: float, name: str) -> None:
    for field, value in (("poll_interval_seconds", seconds), ("worker_id", name)):
        text = f"{field}: {formatted(field, value)}\n"
        found = yaml.safe_load(text)[field]
        said: dict[str, Any] = {field: found}
        assert getattr(Settings(**said), field) == value


def test_show_says_where_each_came_from() -> None:
    Path("s.yaml").write_text("worker_count: 3\n")
    words = ("--config", "s.yaml", "config", "show", "--origin")
    lines = hold(*words, OUTBOX_LEASE_SECONDS="45").stdout.splitlines()
    assert "worker_count: 3                               # file s.yaml" in lines
    assert "lease_seconds: 45s                            # environment OUTBOX_LEASE_SECONDS" in (
        lines
    )
    found = json.loads(hold(*words, "--json", OUTBOX_LEASE_SECONDS="45").stdout)
    assert found["lease_seconds"] == {
        "value": 45.0,
        "origin": "environment OUTBOX_LEASE_SECONDS",
    }
    assert list(found) == list(FIELDS)


def test_show_as_json_has_every_value() -> None:
    found = json.loads(hold("config", "show", "--json", **sampled()).stdout)
    assert found == json.loads(json.dumps(plain(load(environ=sampled()).settings)))


def test_the_documented_example_is_shown_as_typed() -> None:
    command = (
        "export OUTBOX_WORKER_ID=c1 OUTBOX_METRICS_PORT=9110 OUTBOX_BATCH_SIZE=50 "
        "OUTBOX_POLL_INTERVAL_SECONDS=0.2 OUTBOX_LEASE_SECONDS=30 OUTBOX_MAX_ATTEMPTS=10 "
        "OUTBOX_BASE_BACKOFF_SECONDS=0.5 OUTBOX_MAX_BACKOFF_SECONDS=30 "
        "OUTBOX_RECLAIM_INTERVAL_SECONDS=5 OUTBOX_MAX_PROCESSING_SECONDS=600 OUTBOX_RUN_SECONDS=2\n"
        f"{sys.executable} -m holdfast config show --origin\n"
        f"{sys.executable} -m holdfast config check\n"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = {line.partition(" #")[0].rstrip() for line in done.stdout.splitlines() if "OUT" in line}
    assert said == {
        *("worker_id: c1", "metrics_port: 9110", "batch_size: 50", "poll_interval_seconds: 200ms"),
        *("lease_seconds: 30s", "max_attempts: 10", "base_backoff_seconds: 500ms"),
        *("max_backoff_seconds: 30s", "reclaim_interval_seconds: 5s"),
        *("max_processing_seconds: 10m", "run_seconds: 2s", "task_timeout_seconds: 9m"),
    }


# --- check ------------------------------------------------------------------------------------


def test_check_is_content_with_what_is_good() -> None:
    result = hold("config", "check")
    assert (result.exit_code, result.output) == (0, "the settings: no problems\n")
    Path("s.yaml").write_text("worker_count: 3\n")
    result = hold("config", "check", "s.yaml")
    assert (result.exit_code, result.output) == (0, "s.yaml: no problems\n")
    assert list(Path().iterdir()) == [Path("s.yaml")], "nothing was made"


def test_check_names_everything_that_is_wrong() -> None:
    Path("file").write_text("")
    Path("s.yaml").write_text("worker_cuont: 3\nlease_seconds: long\nsync: perhaps\n")
    result = hold("config", "check", "s.yaml", HOLDFAST_METRICS_PORT="http")
    assert (result.exit_code, result.stdout) == (2, "")
    durations = "500ms, 3s, 2m, 1h30m or 1d"
    assert result.stderr.splitlines() == [
        "holdfast: worker_cuont: not a setting; did you mean worker_count? (file s.yaml)",
        f"holdfast: lease_seconds: 'long' is not a duration such as {durations} (file s.yaml)",
        "holdfast: sync: 'perhaps' is not one of always, interval, off (file s.yaml)",
        "holdfast: metrics_port: 'http' is not a whole number (environment HOLDFAST_METRICS_PORT)",
    ]
    found = json.loads(hold("config", "check", "s.yaml", "--json").stdout)
    assert [problem["field"] for problem in found["problems"]] == [
        *("worker_cuont", "lease_seconds", "sync")
    ]


def test_check_looks_at_the_places_as_well() -> None:
    Path("file").write_text("")
    result = hold("--store", "file/x", "config", "check")
    assert result.exit_code == 2
    assert "store: 'file/x' cannot be used" in result.stderr
    assert "(flag --store)" in result.stderr


def test_check_says_what_is_doubtful_and_is_content() -> None:
    result = hold(
        "config",
        "check",
        HOLDFAST_LEASE_SECOND="3",
        HOLDFAST_QUEUES="a:1",
        HOLDFAST_WORKER_COUNT="2",
    )
    assert result.exit_code == 0
    assert "did you mean HOLDFAST_LEASE_SECONDS?" in result.stderr
    assert "worker_count: 2 has no effect" in result.stderr


@pytest.mark.parametrize("words", [("show",), ("diff",), ("reload",)])
def test_the_others_too_say_everything_that_is_wrong(words: tuple[str, ...]) -> None:
    result = hold("config", *words, HOLDFAST_SYNC="perhaps", HOLDFAST_WORKERS="many")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "sync: 'perhaps'" in result.stderr
    assert "worker_count: 'many'" in result.stderr


# --- diff and reload --------------------------------------------------------------------------


def test_diff_prints_what_differs_from_the_defaults() -> None:
    assert hold("config", "diff").output == "every setting has its default\n"
    result = hold("config", "diff", HOLDFAST_LEASE_SECONDS="45", HOLDFAST_FLAGS="fast=on")
    assert result.output.splitlines() == [
        "lease_seconds: 30s -> 45s (environment HOLDFAST_LEASE_SECONDS)",
        'flags: {} -> {"fast":true} (environment HOLDFAST_FLAGS)',
    ]
    found = json.loads(hold("config", "diff", "--json", HOLDFAST_LEASE_SECONDS="45").stdout)
    assert [one["field"] for one in found["from_defaults"]] == ["lease_seconds"]
    assert found["daemon_process"] is None


def test_reload_needs_a_daemon() -> None:
    result = hold("config", "reload")
    assert (result.exit_code, result.stdout) == (5, "")
    assert result.stderr == (
        "holdfast: no daemon runs on ./data: start one with `holdfast run`, or choose another "
        "store with --store\n"
    )
