"""The store and the settings file that an application names: who wins, and what is said."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli.main import main
from holdfast.settings import ApplicationSettings, load

APPLICATION = ApplicationSettings(store="./named")


def test_the_store_of_the_application_wins_over_environment_and_file() -> None:
    Path("settings.yaml").write_text("store: ./filed\nworker_count: 3\n")
    environ = {"HOLDFAST_STORE": "./environed"}
    found = load("settings.yaml", environ=environ, application=APPLICATION)
    assert found.settings.store == "./named"
    assert found.settings.worker_count == 3
    assert found.origins["store"] == "application"
    names, remove = "store: the application names ./named, so", "is not used: remove one of the two"
    assert sorted(found.warnings) == [
        f"{names} ./environed (environment HOLDFAST_STORE) {remove}",
        f"{names} ./filed (file settings.yaml) {remove}",
    ]


def test_a_flag_wins_over_the_application_and_that_is_said() -> None:
    found = load(environ={}, flags={"store": "./flagged"}, application=APPLICATION)
    assert found.settings.store == "./flagged"
    (warning,) = found.warnings
    assert warning == (
        "store: ./flagged (flag --store) is used, and the application names ./named: its other "
        "processes enqueue there"
    )


def test_the_log_path_names_a_store_too() -> None:
    environ = {"HOLDFAST_WAL_PATH": "./elsewhere/wal.log"}
    found = load(environ=environ, application=APPLICATION)
    assert found.settings.store == "./named"
    assert "./elsewhere/wal.log (environment HOLDFAST_WAL_PATH) is not used" in found.warnings[0]
    flagged = load(environ={}, flags={"wal_path": "./f/wal.log"}, application=APPLICATION)
    assert flagged.settings.store == "f"
    assert "./f/wal.log (flag --wal-path) is used" in flagged.warnings[0]


@pytest.mark.parametrize(
    "environ",
    [
        {"HOLDFAST_STORE": "named"},
        {"HOLDFAST_STORE": "./named/"},
        {"HOLDFAST_WAL_PATH": "named/wal.log"},
        {"DATABASE_URL": "postgresql://other@db/other"},
        {},
    ],
)
def test_nothing_is_said_where_there_is_no_contradiction(environ: dict[str, str]) -> None:
    Path("configs").mkdir()
    Path("configs/default.yaml").write_text("store: ./data\nwal_path: ./data/wal.log\n")
    found = load(environ=environ, application=APPLICATION)
    assert found.settings.store == "./named"
    assert found.warnings == ()


def test_a_password_is_not_shown_in_a_contradiction() -> None:
    named = ApplicationSettings(store="postgresql://me:secret1@db/one")
    environ = {"HOLDFAST_STORE": "postgresql://me:secret2@db/two"}
    (warning,) = load(environ=environ, application=named).warnings
    assert "postgresql://me:***@db/one" in warning
    assert "postgresql://me:***@db/two" in warning
    assert "secret" not in warning


def test_the_file_of_the_application_is_read_unless_a_flag_names_another() -> None:
    Path("mine.yaml").write_text("store: ./mine\n")
    Path("other.yaml").write_text("store: ./other\n")
    named = ApplicationSettings(config="mine.yaml")
    assert load(environ={}, application=named).settings.store == "./mine"
    found = load("other.yaml", environ={}, application=named)
    assert found.settings.store == "./other"
    assert found.warnings == (
        "config: other.yaml is read, and the application itself reads mine.yaml",
    )
    assert load("./mine.yaml", environ={}, application=named).warnings == ()


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        ('"./named"', {}),
        ('"./named"', {"HOLDFAST_STORE": "./environed"}),
        ("", {"HOLDFAST_STORE": "./environed"}),
        ('config="mine.yaml"', {}),
        ("", {}),
    ],
)
def test_a_command_beside_an_application_finds_the_store_of_its_producers(
    arguments: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine.yaml").write_text("store: ./mine\n")
    Path("shop_app.py").write_text(
        f"from holdfast import Holdfast\napp = Holdfast({arguments})\n", "utf-8"
    )
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    scope: dict[str, Holdfast] = {}
    exec(Path("shop_app.py").read_text(), scope)  # noqa: S102 - the application as written above
    result = CliRunner().invoke(main, ["--app", "shop_app.py", "config", "show"])
    assert result.exit_code == 0, result.output
    assert f"store: {scope['app'].settings.store}" in result.stdout.splitlines()
