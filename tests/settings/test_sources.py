"""Four doors lead to the same value of every setting, and the stronger one wins."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.commands import run as running
from holdfast.cli.main import main
from holdfast.model.errors import InvalidInput
from holdfast.settings import (
    ALIASES,
    DEFAULT_FILE,
    DEFAULTS,
    OLD_ENVIRONMENT,
    LoadedSettings,
    Settings,
    formatted,
    load,
    read,
)

from .samples import FIELDS, SAMPLES

ROOT = Path(__file__).parent.parent.parent


def test_every_setting_has_a_sample_that_is_not_its_default() -> None:
    assert list(SAMPLES) == list(FIELDS)
    for field, (_text, value) in SAMPLES.items():
        assert value != DEFAULTS[field], field


def from_file(field: str, text: str, name: str = "settings.yaml") -> LoadedSettings:
    Path(name).write_text(f"{field}: {json.dumps(text)}\n")
    return load(name, environ={})


def from_command_line(monkeypatch: pytest.MonkeyPatch, *words: str) -> LoadedSettings:
    """Return what ``holdfast run`` would go by."""
    found: list[LoadedSettings] = []

    def run(load: Callable[[], LoadedSettings], _app: str | None) -> int:
        found.append(load())
        return 0

    monkeypatch.setattr(running, "run", run)
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == 0, result.output
    return found[0]


@pytest.mark.parametrize("field", FIELDS)
def test_the_four_doors_of_a_setting_are_equal(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = SAMPLES[field]
    variable, flag = f"HOLDFAST_{field.upper()}", f"--{field.replace('_', '-')}"
    words = (flag, text, "run") if field == "store" else ("run", flag, text)
    loaded = {
        f"environment {variable}": load(environ={variable: text}),
        "file settings.yaml": from_file(field, text),
        f"flag {flag}": from_command_line(monkeypatch, *words),
    }
    direct = Settings(**{field: value})  # type: ignore[arg-type]
    assert getattr(direct, field) == value
    for origin, found in loaded.items():
        assert found.settings == direct, origin
        assert found.origins[field] == origin
        others = {name for name, said in found.origins.items() if said != "default"}
        assert others - {"store", "wal_path", "snapshot_path"} <= {field}


@pytest.mark.parametrize("field", FIELDS)
def test_the_default_written_out_is_the_default(field: str) -> None:
    text = formatted(field, DEFAULTS[field])
    Path("settings.yaml").write_text(f"{field}: {text}\n")
    assert load("settings.yaml", environ={}).settings == Settings()
    if DEFAULTS[field] is not None:
        said = "" if field == "flags" else text.strip('"')
        found = load(environ={f"HOLDFAST_{field.upper()}": said}).settings
        assert Path(str(getattr(found, field))) == Path(str(DEFAULTS[field]))


@pytest.mark.parametrize("field", FIELDS)
def test_the_stronger_door_wins(field: str) -> None:
    text, value = SAMPLES[field]
    bad = {"store": "redis://no", "flags": "on"}.get(field, "\n")
    variable = f"HOLDFAST_{field.upper()}"
    usual = Settings()
    # The weaker value would be refused: it is not even looked at where a stronger one stands.
    loaded = load(from_bad_file(field, bad), environ={variable: text})
    assert getattr(loaded.settings, field) == value
    assert loaded.origins[field] == f"environment {variable}"
    loaded = load(from_bad_file(field, bad), environ={variable: bad}, flags={field: text})
    assert getattr(loaded.settings, field) == value
    assert loaded.settings != usual
    with pytest.raises(InvalidInput, match=field):
        load(from_bad_file(field, bad), environ={})


def from_bad_file(field: str, text: str) -> str:
    Path("bad.yaml").write_text(f"{field}: {json.dumps(text)}\n")
    return "bad.yaml"


@pytest.mark.parametrize("alias", ALIASES)
def test_another_name_leads_to_the_same_setting(
    alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = ALIASES[alias]
    text, value = SAMPLES[field]
    assert getattr(from_file(alias, text).settings, field) == value
    assert getattr(load(environ={f"HOLDFAST_{alias.upper()}": text}).settings, field) == value
    assert getattr(load(environ={}, flags={alias: text}).settings, field) == value


@pytest.mark.parametrize("name", OLD_ENVIRONMENT)
def test_an_old_name_gives_way_to_ours_and_wins_over_the_file(name: str) -> None:
    field = OLD_ENVIRONMENT[name]
    text, value = SAMPLES[field]
    Path("settings.yaml").write_text(f"{field}: {json.dumps(formatted(field, DEFAULTS[field]))}\n")
    loaded = load(None, environ={name: text})
    assert getattr(loaded.settings, field) == value
    assert loaded.origins[field] == f"environment {name}"
    ours = load(environ={name: "nonsense that nobody reads\n", f"HOLDFAST_{field.upper()}": text})
    assert getattr(ours.settings, field) == value


# --- DATABASE_URL -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "store"),
    [
        ("postgresql://u:p@h:5432/db", "postgresql://u:p@h:5432/db"),
        ("postgresql+psycopg://u:p@h/db?sslmode=require", "postgresql://u:p@h/db?sslmode=require"),
        ("postgresql+psycopg2://h/db", "postgresql://h/db"),
        ("postgresql+asyncpg://u@[::1]:5432/db", "postgresql://u@[::1]:5432/db"),
        ("postgres://u:p%2Fq@h1:1,h2:2/db", "postgresql://u:p%2Fq@h1:1,h2:2/db"),
        (" PostgreSQL+PsycoPG://h/db\n", "postgresql://h/db"),
        ("postgresql:///db", "postgresql:///db"),
    ],
)
def test_a_database_url_names_the_store(url: str, store: str) -> None:
    reading = read(environ={"DATABASE_URL": url})
    assert reading.problems == ()
    assert reading.loaded is not None
    found = reading.loaded.settings
    assert found.store == store
    assert (found.directory, found.wal_path, found.snapshot_path) == (None, None, None)
    assert reading.loaded.origins["store"] == "environment DATABASE_URL"
    assert found.on_server


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "mysql://u:p@h/db",
            "sqlite:///x.db",
            "postgresql://h:port/db",
            "postgresql://h:0/db",
            "localhost/db",
            "./data",
        ),
        *("postgresql://u:p/q@h/db", "postgresql://u p@h/db", "postgresql://h:70000/db"),
        *("postgresql+psycopg:db", "postgresql+/psycopg://h/db", "postgresql://h/\x7f"),
    ],
)
def test_a_database_url_that_is_none_is_refused_and_never_left_out(url: str) -> None:
    reading = read(environ={"DATABASE_URL": url})
    assert [problem.field for problem in reading.problems] == ["store"]
    assert reading.problems[0].problem.endswith("(environment DATABASE_URL)")


def test_everything_else_that_names_the_store_wins_over_a_database_url() -> None:
    environ = {"DATABASE_URL": "postgresql://h/db"}
    assert load(environ={**environ, "HOLDFAST_STORE": "./data"}).settings.directory == "data"
    assert load(environ={**environ, "HOLDFAST_STORE": "/x"}).settings.store == "/x"
    assert load(environ=environ, flags={"store": "memory:"}).settings.store == "memory:"
    for text in ("store: /y\n", "wal_path: /y/wal.log\n"):
        Path("settings.yaml").write_text(text)
        loaded = load("settings.yaml", environ=environ)
        assert loaded.settings.store == "/y"
        assert loaded.origins["store"] == "file settings.yaml"


def test_a_file_that_lists_the_defaults_says_nothing_of_the_store() -> None:
    path = str(ROOT / DEFAULT_FILE)
    reading = read(path, environ={"DATABASE_URL": "postgresql://h/db"})
    assert reading.loaded is not None
    assert reading.loaded.settings.store == "postgresql://h/db"
    assert reading.loaded.origins["worker_count"] == f"file {path}"


# --- section O ----------------------------------------------------------------------------------

DOCUMENTED = {
    "OUTBOX_WORKER_ID": "c1",
    "OUTBOX_METRICS_PORT": "9110",
    "OUTBOX_BATCH_SIZE": "50",
    "OUTBOX_POLL_INTERVAL_SECONDS": "0.2",
    "OUTBOX_LEASE_SECONDS": "30",
    "OUTBOX_MAX_ATTEMPTS": "10",
    "OUTBOX_BASE_BACKOFF_SECONDS": "0.5",
    "OUTBOX_MAX_BACKOFF_SECONDS": "30",
    "OUTBOX_RECLAIM_INTERVAL_SECONDS": "5",
    "OUTBOX_MAX_PROCESSING_SECONDS": "600",
    "OUTBOX_RUN_SECONDS": "2",
}


def test_the_documented_example_is_read_as_a_whole() -> None:
    assert list(DOCUMENTED) == list(OLD_ENVIRONMENT)
    loaded = load(environ=DOCUMENTED)
    assert [getattr(loaded.settings, field) for field in OLD_ENVIRONMENT.values()] == [
        *("c1", 9110, 50, 0.2, 30.0, 10, 0.5, 30.0, 5.0, 600.0, 2.0)
    ]
    assert loaded.warnings == ()


def test_a_misspelt_old_name_is_pointed_out() -> None:
    loaded = load(environ={"OUTBOX_LEASE_SECOND": "3", "OUTBOX_TABLE": "x"})
    assert loaded.warnings == (
        "OUTBOX_LEASE_SECOND is not a setting; did you mean OUTBOX_LEASE_SECONDS?",
    )


# --- configs/default.yaml -----------------------------------------------------------------------


def test_the_file_in_the_repository_has_a_comment_above_every_setting() -> None:
    lines = (ROOT / DEFAULT_FILE).read_text().splitlines()
    for field in FIELDS:
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{field}:"))
        assert lines[at - 1].startswith("# "), field
        assert not lines[at - 1].startswith("# ---"), field
