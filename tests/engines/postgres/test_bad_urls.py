"""Stores that cannot be used: one sentence each, with what to do, and exit code 5."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg.conninfo import conninfo_to_dict

from holdfast.cli.main import main
from holdfast.engines.postgres.connection import database as database_module
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.engines.postgres.schema import migration_files
from holdfast.engines.postgres.schema.migrate import migrate
from holdfast.engines.postgres.schema.migration_files import Migration
from holdfast.model.errors import InvalidInput, Unavailable
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed

from .servers import QUICK, Databases, Server

SECRET = "geheim"  # noqa: S105 - that of a test
GUARDED = """
local all guarded scram-sha-256
local all outsider reject
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Databases]:
    """A server that lets some in with a password, and some not at all."""
    server = Server(18)
    try:
        rules = server.directory / "data" / "pg_hba.conf"
        rules.write_text(GUARDED + rules.read_text())
        server.start()
        databases = Databases(server.url, "bad")
        migrate(databases.url(databases.template))
        roles = f"""
            CREATE ROLE guarded LOGIN PASSWORD '{SECRET}';
            CREATE ROLE outsider LOGIN;
            CREATE ROLE nologin;
            CREATE ROLE worker LOGIN;
        """
        execute(server.url, roles)
        yield databases
        databases.close()
    finally:
        server.remove()


@pytest.fixture
def made(server: Databases) -> Iterator[str]:
    with server.fresh() as url:
        yield as_url(url)


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Run a command that uses this store, whatever is set outside."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("HOLDFAST_", "OUTBOX_"))]:
        monkeypatch.delenv(name)

    def run(url: str, *args: str) -> Result:
        result = CliRunner().invoke(main, ["--store", url, *args], input="{}")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def execute(url: str, text: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(text.encode())


def as_url(place: str, user: str = "", password: str = "", **changed: str) -> str:
    """Write where a database is as people do."""
    parts = {**conninfo_to_dict(place), **changed}
    who = f"{user or parts['user']}{f':{password}' if password else ''}"
    return f"postgresql://{who}@/{parts['dbname']}?host={parts['host']}"


def opened(url: str, **options: Any) -> None:
    async def work() -> None:
        await (await PostgresEngine.open(url, options=PostgresOptions(**options))).close()

    asyncio.run(work())


def refusal(url: str, **options: Any) -> str:
    """Return the sentence with which a place is refused."""
    with pytest.raises(Unavailable) as caught:
        opened(url, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert SECRET not in sentence
    return sentence


# --- no connection ------------------------------------------------------------------------------

UNREACHED = {
    "host": ("postgresql://u:geheim@nowhere.invalid/x", "the host has no address; correct its"),
    "port": (
        "postgresql://u:geheim@127.0.0.1:1/x",
        "postgresql://u:***@127.0.0.1:1/x cannot be reached",
    ),
    "socket": ("postgresql://u:geheim@/x?host=/nowhere", "no server listens there; start it"),
    "database": ("{admin:nowhere}", "names a database that does not exist: create it"),
    "user": ("{user:nobody_at_all}", "has no user 'nobody_at_all': correct it"),
    "no login": ("{user:nologin}", "does not let user 'nologin' log in"),
    "password": ("{user:guarded:geheim2}", "refuses user 'guarded' or the password: correct"),
    "no password": ("{user:guarded}", "refuses user 'guarded' or the password: correct"),
    "rules": ("{user:outsider}", "check pg_hba.conf there"),
}


def url_of(form: str, made: str) -> str:
    if not form.startswith("{"):
        return form
    what, *rest = form.strip("{}").split(":")
    return as_url(made, dbname=rest[0]) if what == "admin" else as_url(made, *rest)


@pytest.mark.parametrize("case", UNREACHED)
def test_a_server_that_does_not_let_us_in_is_a_sentence(made, hold, case):
    form, said = UNREACHED[case]
    url = url_of(form, made)
    assert said in refusal(url)
    for args in (("migrate",), ("migrate", "--json"), ("status",), ("enqueue",)):
        result = hold(url, *args)
        assert (result.exit_code, result.stdout) == (5, "")
        assert said in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert SECRET not in result.stderr


def test_the_control_the_right_password_lets_us_in(made):
    execute(made, "ALTER ROLE guarded SUPERUSER")
    opened(as_url(made, "guarded", SECRET))


def test_who_may_not_connect_to_this_database_is_told_so(made):
    name = conninfo_to_dict(made)["dbname"]
    execute(made, f"REVOKE CONNECT ON DATABASE {name} FROM public")
    assert "GRANT CONNECT" in refusal(as_url(made, "worker"))


def test_a_server_that_does_not_answer_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://u:geheim@127.0.0.1:{silent.getsockname()[1]}/x"
        assert "it does not answer" in refusal(url, patience_seconds=1.0)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:ge/heim@host/db",
        "postgresql://u:123/heim@host/db",
        "postgresql://u:ge?heim@host/db",
        "postgresql://u:ge?heim=1@host/db",
        "postgresql://u:geheim@host:port/db",
        "postgresql://u:geheim@host/db?sslmod=require",
        "postgresql://[::1/db",
        "host=a password geheim",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_without_its_secrets(url):
    with pytest.raises(InvalidInput, match="not a URL of PostgreSQL") as caught:
        opened(url)
    assert "heim" not in str(caught.value)


# --- the schema ---------------------------------------------------------------------------------


def test_a_schema_that_is_missing_or_empty_asks_for_a_migration(made):
    assert refusal(made, schema="another").endswith(
        " has no schema 'another': run holdfast migrate"
    )
    execute(made, "CREATE SCHEMA another")
    assert "has nothing of Holdfast in it: run holdfast migrate" in refusal(made, schema="another")


def test_a_schema_of_another_version_is_a_sentence(made, hold, monkeypatch):
    known = migration_files.known()
    later = Migration(len(known) + 1, "later", "SELECT 1;")
    monkeypatch.setattr(migration_files, "known", lambda: (*known, later))
    assert refusal(made).endswith(f"it lacks {later.title}: run holdfast migrate")
    assert hold(made, "migrate").stdout == f"applied {later.title}\n"
    monkeypatch.setattr(migration_files, "known", lambda: known)
    assert refusal(made).endswith(f"{later.title}: upgrade Holdfast")
    for args in ((), ("--sql",), ("--json",)):
        result = hold(made, "migrate", *args)
        assert (result.exit_code, result.stdout) == (5, "")
        assert result.stderr.endswith(f"{later.title}: upgrade Holdfast\n")


def test_the_daemon_and_the_commands_say_so_too(made, hold, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_SCHEMA", "another")
    for command in (("status",), ("enqueue",), ("jobs", "list"), ("validate",)):
        result = hold(made, *command)
        assert (result.exit_code, result.stdout) == (5, "")
        assert result.stderr.endswith(" has no schema 'another': run holdfast migrate\n")
    daemon = subprocess.run(
        [sys.executable, "-m", "holdfast", "--store", made, "run", "--metrics-port", "off"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert daemon.returncode == 5
    assert daemon.stderr.endswith(" has no schema 'another': run holdfast migrate\n")
    assert len(daemon.stderr.splitlines()) == 1
    assert hold(made, "migrate").stdout == "".join(
        f"applied {one.title}\n" for one in migration_files.known()
    )
    assert hold(made, "enqueue").exit_code == 0


def test_foreign_tables_are_named(server, hold):
    with server.bare() as place:
        execute(place, "CREATE SCHEMA holdfast; CREATE TABLE holdfast.jobs (); ")
        assert "did not make: jobs;" in refusal(place)
        result = hold(as_url(place), "migrate")
        assert (result.exit_code, result.stdout) == (5, "")
        assert "did not make: jobs; they are left as they are" in result.stderr


async def test_without_the_check_a_missing_schema_would_be_opened(made, monkeypatch):
    """The control."""
    execute(made, "DROP SCHEMA holdfast CASCADE")
    assert "run holdfast migrate" in await asyncio.to_thread(refusal, made)

    def nothing(_schema: str, _where: str, *, reading: bool) -> Iterator[Any]:
        return
        yield

    monkeypatch.setattr(database_module, "check_usable", nothing)

    database = database_module.Database(made, PostgresOptions())
    await database.open()
    await database.close()


def test_a_database_that_cannot_hold_every_text_is_refused(made, hold):
    execute(
        made, "CREATE DATABASE bad_latin TEMPLATE template0 ENCODING latin1 LOCALE_PROVIDER libc"
    )
    try:
        url = as_url(made, dbname="bad_latin")
        assert "is encoded in LATIN1: Holdfast needs UTF8" in refusal(url)
        assert hold(url, "migrate").exit_code == 5
    finally:
        execute(made, "DROP DATABASE bad_latin WITH (FORCE)")


# --- rights -------------------------------------------------------------------------------------


async def test_rights_that_are_lacking_are_named_until_there_are_enough(made):
    url = as_url(made, "worker")
    steps = [
        ("GRANT USAGE ON SCHEMA holdfast TO", "may not use schema 'holdfast'"),
        ("GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO", "SELECT on holdfast.migrations"),
        (
            "GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO",
            (
                "INSERT, UPDATE, DELETE on holdfast.dead, holdfast.dead_groups, "
                "holdfast.dead_tallies, holdfast.fanout_marks,"
            ),
        ),
        ("GRANT USAGE ON ALL SEQUENCES IN SCHEMA holdfast TO", "USAGE on holdfast.places"),
    ]
    for grant, said in steps:
        assert said in await asyncio.to_thread(refusal, url)
        execute(made, f"{grant} worker")
    execute(made, "REVOKE UPDATE, DELETE ON holdfast.audit FROM worker")
    await asyncio.to_thread(opened, url)

    engine = await PostgresEngine.open(url)
    try:
        await engine.enqueue([NewJob(task="t")])
        [job] = (await engine.claim(queues=["default"], worker="w")).jobs
        assert await engine.settle([completed(job)]) == [None]
    finally:
        await engine.close()


def test_who_may_not_make_a_schema_is_told_so(made, hold):
    execute(made, "DROP SCHEMA holdfast CASCADE")
    result = hold(as_url(made, "worker"), "migrate")
    assert (result.exit_code, result.stdout) == (5, "")
    assert "refuses what Holdfast needs (permission denied for database" in result.stderr


# --- read-only ----------------------------------------------------------------------------------


def test_a_database_that_is_read_only_is_a_sentence(made, hold):
    name = conninfo_to_dict(made)["dbname"]
    execute(made, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert "is read-only for user 'holdfast': default_transaction_read_only is on" in refusal(made)
    result = hold(made, "migrate")
    assert (result.exit_code, result.stdout) == (5, "")
    assert "is read-only for user" in result.stderr


def test_a_standby_is_a_sentence(hold):
    """A real one, which only has no primary to follow."""
    server = Server(18, QUICK)
    try:
        server.start()
        migrate(server.url)
        server.stop()
        (server.directory / "data" / "standby.signal").touch()
        server.start()
        assert "is a standby, which is read-only: connect to the primary" in refusal(server.url)
        result = hold(server.url, "migrate")
        assert (result.exit_code, result.stdout) == (5, "")
        assert "is a standby, which is read-only" in result.stderr
    finally:
        server.remove()


# --- the command --------------------------------------------------------------------------------


def test_the_command_says_what_it_did_in_words_and_in_json(server, hold):
    [first, *_] = migration_files.known()
    with server.bare() as place:
        url = as_url(place)
        script = hold(url, "migrate", "--sql")
        assert (script.exit_code, script.stderr) == (0, "")
        assert "CREATE SCHEMA" in script.stdout
        planned = json.loads(hold(url, "migrate", "--sql", "--json").stdout)
        assert planned["sql"] == script.stdout
        assert planned["pending"][0] == {"number": 1, "name": first.name}
        assert f"applied {first.title}\n" in hold(url, "migrate").stdout
        assert hold(url, "migrate").stdout == "schema holdfast is up to date\n"
        assert json.loads(hold(url, "migrate", "--json").stdout) == {
            "schema": "holdfast",
            "applied": [],
        }
        assert "nothing to do" in hold(url, "migrate", "--sql").stdout
        opened(url)


def test_the_sql_of_a_server_that_cannot_be_reached_is_everything(hold):
    result = hold("postgresql://u:geheim@127.0.0.1:1/x", "migrate", "--sql")
    assert result.exit_code == 0
    assert "CREATE TABLE holdfast.jobs" in result.stdout
    assert "These are all migrations" in result.stderr
    assert SECRET not in result.output


@pytest.mark.parametrize("store", ["elsewhere", "memory:"])
@pytest.mark.parametrize("args", [(), ("--sql",), ("--json",)])
def test_a_store_that_is_no_server_needs_no_migration(hold, store, args):
    result = hold(store, "migrate", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"store: {store!r} needs no migration: only postgresql://" in result.stderr
