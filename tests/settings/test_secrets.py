"""A password in a URL is shown nowhere."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.main import main
from holdfast.settings import OLD_ENVIRONMENT, Settings, formatted, masked, read

from .samples import FIELDS

CANARY = "c4n4ry"
URLS = [
    f"postgresql://user:{CANARY}@host/db",
    f"postgresql+psycopg://user:{CANARY}@host:5432/db?sslmode=require",
    f"postgres://user@corp.example:{CANARY}@host/db",
    f"postgresql://user:a/{CANARY}@host/db",
    f"postgresql://user:{CANARY}@more@host/db",
    f"postgresql://user:{CANARY} @host/db",
    f"postgresql://user:{CANARY}\n@host/db",
    f"postgresql://user:{CANARY}",
    f"postgresql://user:'\"{CANARY}@host",
    f"postgresql:///db?user=x&password={CANARY}",
    f"postgresql:///db?sslpassword={CANARY}&user=x",
    f"redis://:{CANARY}@host:6379/0",
    f"mysql://user:{CANARY}@host/db",
    f"  postgresql://user:{CANARY}@host:port/db",
    f"postgres:/user:{CANARY}@host/db",
    f"postgresql//user:{CANARY}@host/db",
    f"postgresql:user:{CANARY}@host",
    f"user:{CANARY}@host/db",
    f"host=h password={CANARY} dbname=x",
    f"dbname=x password = '{CANARY}'",
]
UNREACHABLE = f"postgresql+psycopg://user:{CANARY}@127.0.0.1:1/db?sslmode=require"
CONFIG = [
    *(("config", "show"), ("config", "show", "--origin"), ("config", "show", "--json")),
    *(("config", "show", "--origin", "--json"), ("config", "check"), ("config", "check", "--json")),
    *(("config", "diff"), ("config", "diff", "--json"), ("config", "reload")),
]
OTHERS = [
    *(("status",), ("run",), ("enqueue",), ("jobs", "show", "a"), ("journal", "verify")),
    *(("journal", "dump"), ("dump", "x")),
]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://user:secret@host/db", "postgresql://user:***@host/db"),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
        ("postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("postgresql://[::1]:5432/db", "postgresql://[::1]:5432/db"),
        ("postgresql://:p@h/db?password=q&user=r", "postgresql://:***@h/db?password=***&user=r"),
        ("./data", "./data"),
        ("mail:8,slow:2", "mail:8,slow:2"),
        ("user:secret@host/db", "user:***@host/db"),
        ("postgres:/user:secret@host/db", "postgres:/user:***@host/db"),
        ("host=h password = secret", "host=h password =***"),
        ("C:\\data\\user@home", "C:\\data\\user@home"),
        ("/data/a:b/user@home", "/data/a:b/user@home"),
    ],
)
def test_what_is_shown_of_a_url(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert masked(shown) == shown


@given(password=st.text(min_size=1, max_size=20), user=st.text("abc@.-", max_size=8))
def test_no_password_is_shown_whatever_is_in_it(password: str, user: str) -> None:
    assert f"<{password}>" not in masked(f"postgresql://{user}:<{password}>@host/db")


def said(*words: str) -> str:
    """Run a command, which must end in a sentence without the password; return what it said."""
    result = CliRunner().invoke(main, list(words), input="[]")
    assert CANARY not in result.output, words
    assert CANARY not in repr(result.exception)
    assert result.exit_code in (0, 2, 5), result.output
    assert "Traceback" not in result.output
    return result.output


@pytest.mark.parametrize("url", URLS)
def test_no_config_command_shows_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("good.yaml").write_text(f"store: {json.dumps(url)}\n")
    Path("bad.yaml").write_text(f"store: {url}: x\n")
    assert "***" in said("--store", url, "config", "show")
    said("--store", url, "config", "check")
    for name in ("good.yaml", "bad.yaml"):
        said("--config", name, "config", "check")
        said("config", "check", name)
    monkeypatch.setenv("DATABASE_URL", url)
    for words in CONFIG:
        told = said(*words)
        assert "***" in told or words[1] in ("check", "reload")  # which connects, if it can


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_no_other_command_shows_it(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for url in URLS[:2]:
        monkeypatch.setenv("DATABASE_URL", url)
        assert "***" in said(*words)
    monkeypatch.setenv("DATABASE_URL", URLS[2])  # whose password would be taken for a port
    said(*words)


@pytest.mark.parametrize("url", URLS)
def test_no_error_shows_it_wherever_it_was_put_by_mistake(url: str) -> None:
    names = {f"HOLDFAST_{field.upper()}": field for field in FIELDS} | dict(OLD_ENVIRONMENT)
    for name, field in names.items():
        reading = read(environ={name: url})
        assert CANARY not in "".join(map(str, reading.problems))
        if reading.loaded is not None:
            assert CANARY not in repr(reading.loaded)
            assert CANARY not in formatted(field, getattr(reading.loaded.settings, field))


@pytest.mark.parametrize("text", ["host=h dbname=x", "dbname = x", "user:a@h/db", "postgres:/h/d"])
def test_what_looks_like_a_connection_does_not_become_a_directory(text: str) -> None:
    [problem] = read(environ={"HOLDFAST_STORE": text}).problems
    assert "write postgresql://user@host/database" in str(problem)


@pytest.mark.parametrize("text", ["./host=x", "postgres", "postgres-data", "/srv/postgres", "a@b"])
def test_a_directory_may_have_a_name_that_is_nearly_one(text: str) -> None:
    assert read(environ={"HOLDFAST_STORE": text}).checked().settings.directory == text


def test_a_password_in_a_flag_is_warned_of_and_one_in_the_environment_is_not() -> None:
    url = f"postgresql://user:{CANARY}@host/db"
    [warning] = read(environ={}, flags={"store": url}).warnings
    assert "HOLDFAST_STORE" in warning
    assert CANARY not in warning
    assert read(environ={"HOLDFAST_STORE": url}).warnings == ()
    assert read(environ={}, flags={"store": "postgresql://user@host/db"}).warnings == ()


def test_settings_do_not_tell_it_when_they_are_printed() -> None:
    found = Settings(store=URLS[0])
    assert CANARY in found.store, "they know it"
    assert CANARY not in repr(found)
    assert CANARY not in str(found)
    assert CANARY not in found.store_shown
    assert CANARY not in str(list(found.__rich_repr__()))
    assert found.store_shown == "postgresql://user:***@host/db"


def test_a_server_that_cannot_be_reached_is_one_clear_sentence(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "run"],
        env={**os.environ, "DATABASE_URL": UNREACHABLE},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (5, "")
    sentence = "holdfast: postgresql://user:***@127.0.0.1:1/db?sslmode=require cannot be reached: "
    assert done.stderr.startswith(sentence)
    assert len(done.stderr.splitlines()) == 1
    assert list(here.iterdir()) == [], "nothing was made"
