"""Whatever is said of a setting is taken, or refused by field, value and origin."""

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from holdfast.model.errors import InvalidInput
from holdfast.model.redaction import shown
from holdfast.settings import DEFAULTS, Settings, load, read

from .samples import FIELDS

TEXT = st.text(max_size=12) | st.sampled_from(
    [
        *("", " ", "\0", "a\0b", "\n", "\ud800", "off", "none", "null", "true", "0", "-0", "1e999"),
        *("0x10", "١٢", "1_000", "nan", "inf", "-1", "1.5", "99999999999999999999", "9" * 400),
        *("memory:", "postgresql://u:p@h/d", "redis://", "../..", "~", "C:\\x", "x" * 5_000),
        *("a:1,b", "a=on", "=", ",", ":", "a:b:c", "3 s", "3s3", "1h30m", "1d" * 200),
    ]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, -1, 2**63, 2**64, -(2**64), 10**400])
KEYS = st.integers() | st.text(max_size=5)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT | st.binary(max_size=3) | st.dates(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=3,
)


def said_of(field: str, value: object, origin: str, **doors: Mapping[str, object]) -> None:
    """Check that this is taken, or refused with everything that a person needs to know."""
    environ = {name: str(text) for name, text in doors.get("environ", {}).items()}
    reading = read(environ=environ, flags=doors.get("flags", {}))
    if reading.loaded is not None:
        again = Settings(**{name: getattr(reading.loaded.settings, name) for name in FIELDS})
        assert again == reading.loaded.settings
        assert repr(again)
        return
    for problem in reading.problems:
        assert problem.field == field
        assert problem.problem.endswith(f"({origin})")
        assert len(problem.problem) < 1_500
    assert any(_names(problem.problem, value) for problem in reading.problems), reading.problems
    with pytest.raises(InvalidInput):
        load(environ=environ, flags=doors.get("flags", {}))


def _names(problem: str, value: object) -> bool:
    """Whether it shows the value, or, where two settings clash, what it was read as."""
    return shown(value) in problem or " is more than " in problem


@hypothesis_settings(max_examples=600, deadline=None)
@given(field=st.sampled_from(FIELDS), value=ANYTHING)
@example("store", "a\0b")
@example("store", "\ud800")
@example("wal_path", "x" * 5_000)
@example("flags", {"a": {"b": {}}})
@example("queues", [["a"]])
@example("metrics_host", "1" * 300)
@example("sync", date(2020, 1, 1))
def test_a_flag_of_any_value_is_taken_or_refused(field: str, value: object) -> None:
    if value is not None:  # a flag that was not given
        said_of(field, value, f"flag --{field.replace('_', '-')}", flags={field: value})


@pytest.mark.parametrize("field", FIELDS)
def test_a_number_that_python_would_not_even_write_is_refused(field: str) -> None:
    for number in (10**5_000, -(10**5_000)):
        for value in (number, [number], {"a": number}):
            said_of(field, value, f"flag --{field.replace('_', '-')}", flags={field: value})


@hypothesis_settings(max_examples=300, deadline=None)
@given(field=st.sampled_from(FIELDS), text=TEXT)
def test_any_text_in_the_environment_is_taken_or_refused(field: str, text: str) -> None:
    name = f"HOLDFAST_{field.upper()}"
    said_of(field, text, f"environment {name}", environ={name: text})


@hypothesis_settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=40) | st.binary(max_size=40), suffix=st.sampled_from(["yaml", "toml"]))
@example("[" * 1_500, "yaml")
@example("a: &a {b: *a}", "yaml")
@example("a = " + "[" * 1_500, "toml")
@example("worker_count: " + "9" * 5_000, "yaml")
@example("worker_count = " + "9" * 5_000, "toml")
@example("? [a, b]\n: 1", "yaml")
@example("flags: {a: on, a: off}", "yaml")
@example("store: !!binary aGk=", "yaml")
@example("run_seconds: 2001-12-14t21:59:43.10-05:00", "yaml")
def test_a_file_of_anything_is_read_or_refused(text: str | bytes, suffix: str) -> None:
    path = Path(f"odd.{suffix}")
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    reading = read(str(path), environ={})
    assert (reading.loaded is None) == bool(reading.problems)


def test_negative_control_what_is_good_is_not_refused() -> None:
    for field, value in DEFAULTS.items():
        if value is not None:
            assert load(environ={}, flags={field: value}).origins


def test_everything_that_is_wrong_is_found_at_once() -> None:
    Path("bad.yaml").write_text(
        "worker_cuont: 3\nlease_seconds: long\nmax_retry: 3\nmax_attempts: 4\n"
        "store: /y\nwal_path: /x/wal.log\nbase_backoff_seconds: 20m\n"
    )
    environ = {"HOLDFAST_METRICS_PORT": "http", "OUTBOX_RUN_SECONDS": "never"}
    reading = read("bad.yaml", environ=environ, flags={"sync": "perhaps"})
    assert reading.loaded is None
    assert [problem.field for problem in reading.problems] == [
        *("worker_cuont", "max_attempts", "lease_seconds", "run_seconds", "metrics_port", "sync"),
        *("wal_path", "base_backoff_seconds"),
    ]


def test_a_file_that_cannot_be_read_hides_nothing_else() -> None:
    reading = read("nowhere.yaml", environ={"HOLDFAST_SYNC": "perhaps"})
    assert [problem.field for problem in reading.problems] == ["config", "sync"]


@pytest.mark.parametrize("text", ["flags:\n  a: on\n  a: off\n", "flags: {a: on, a: off}\n"])
def test_a_flag_that_is_twice_in_a_file_is_refused(text: str) -> None:
    Path("twice.yaml").write_text(text)
    with pytest.raises(InvalidInput, match="a is given twice"):
        load("twice.yaml", environ={})


def test_flags_are_a_mapping_or_text() -> None:
    wanted = {"auto_replay": True, "fast": False}
    Path("a.yaml").write_text("flags:\n  auto_replay: on\n  fast: off\n")
    Path("a.toml").write_text("[flags]\nauto_replay = true\nfast = false\n")
    for path in ("a.yaml", "a.toml"):
        assert load(path, environ={}).settings.flags == wanted
    for text in ("auto_replay=on,fast=off", " auto_replay = TRUE , fast = no "):
        assert load(environ={"HOLDFAST_FLAGS": text}).settings.flags == wanted
    assert json.dumps(load(environ={"HOLDFAST_FLAGS": ""}).settings.flags) == "{}"
