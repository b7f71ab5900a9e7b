"""Migrations: each once, in order, under a lock; and what is refused rather than migrated."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pytest

from holdfast.engines.postgres import joined_verbs
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.engines.postgres.schema import migrate as migrate_module
from holdfast.engines.postgres.schema import migration_files
from holdfast.engines.postgres.schema.check import SchemaState, missing
from holdfast.engines.postgres.schema.migrate import migrate, pending, plan, script
from holdfast.engines.postgres.schema.migration_files import Migration
from holdfast.model.errors import HoldfastError, InvalidInput, Unavailable
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed, dead
from tests.engines.postgres.servers import Databases, programs

KNOWN = migration_files.known()
[COUNTED] = [one for one in KNOWN if one.name == "dead_tallies"]
PLAIN = "ALTER TABLE holdfast.flags ADD COLUMN note text;\n"
LATER = (
    Migration(len(KNOWN) + 1, "noted", PLAIN),
    Migration(len(KNOWN) + 2, "boxes", "CREATE TABLE holdfast.boxes (id bigint PRIMARY KEY);\n"),
    Migration(len(KNOWN) + 3, "more", "ALTER TABLE holdfast.boxes ADD COLUMN size bigint;\n"),
)


@pytest.fixture
def bare(server18: Databases) -> Iterator[str]:
    with server18.bare() as url:
        yield url


@pytest.fixture
def made(server18: Databases) -> Iterator[str]:
    with server18.fresh() as url:
        yield url


@pytest.fixture
def knowing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[Migration]], None]:
    """Have this version know other migrations."""
    return lambda some: monkeypatch.setattr(migration_files, "known", lambda: tuple(some))


def rows(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def applied(url: str, schema: str = "holdfast") -> list[tuple[object, ...]]:
    return rows(url, f"SELECT number, name, checksum, readable_from FROM {schema}.migrations")  # noqa: S608


def titles(migrations: Sequence[Migration]) -> list[str]:
    return [one.title for one in migrations]


def open_and_close(url: str) -> None:
    async def work() -> None:
        await (await PostgresEngine.open(url)).close()

    asyncio.run(work())


def use(url: str, schema: str = "holdfast") -> list[str]:
    """Run a few verbs; return the ids of all jobs that there are then."""
    return asyncio.run(used(url, schema))


async def used(url: str, schema: str) -> list[str]:
    engine = await PostgresEngine.open(url, options=PostgresOptions(schema=schema))
    try:
        await engine.enqueue([NewJob(id=f"{schema}-{n}", task="t") for n in range(3)])
        claim = await engine.claim(queues=["default"], worker="w", limit=1)
        assert await engine.settle([completed(claim.jobs[0])]) == [None]
        assert await engine.validate() == []
        return sorted(job.id for job in (await engine.find()).jobs)
    finally:
        await engine.close()


# --- the files ----------------------------------------------------------------------------------


def test_files_are_numbered_without_a_gap_and_say_who_can_read_what_they_leave():
    assert [one.number for one in KNOWN] == list(range(1, len(KNOWN) + 1))
    for one in KNOWN:
        assert 1 <= one.readable_from <= one.number
    assert {"jobs", "dead", "history", "audit", "waiting", "places"} <= KNOWN[0].makes
    assert Migration(7, "x", "-- Words.\n-- readable_from: 5\nSELECT 1;").readable_from == 5
    assert Migration(7, "x", "SELECT 1;").readable_from == 7


@pytest.mark.parametrize("name", ["", "Big", "a b", 'a"b', "pg_x", "information_schema", "1a"])
def test_a_schema_that_cannot_be_called_so_is_refused(bare, name):
    for call in (script, lambda name: migrate(bare, name)):
        with pytest.raises(InvalidInput, match="schema"):
            call(name)


# --- applying -----------------------------------------------------------------------------------


def test_what_is_lacking_is_applied_once_and_written_down(bare, knowing):
    with psycopg.connect(bare) as connection:
        assert pending(connection) == list(KNOWN)
    assert migrate(bare) == list(KNOWN)
    assert migrate(bare) == []
    knowing([*KNOWN, *LATER])
    with psycopg.connect(bare) as connection:
        assert pending(connection) == list(LATER)
    assert migrate(bare) == list(LATER)
    assert migrate(bare) == []
    books = [(one.number, one.name, one.checksum, one.readable_from) for one in (*KNOWN, *LATER)]
    assert applied(bare) == books
    assert use(bare) == ["holdfast-0", "holdfast-1", "holdfast-2"]


def test_a_schema_that_was_given_is_used_by_who_may_make_none(bare):
    rows(bare, "CREATE ROLE tenant_of_one LOGIN")
    try:
        rows(bare, "CREATE SCHEMA holdfast AUTHORIZATION tenant_of_one")
        theirs = bare.replace("user=holdfast", "user=tenant_of_one")
        with pytest.raises(Unavailable, match="permission denied"):
            migrate(theirs, "another")
        assert migrate(theirs) == list(KNOWN)
        assert len(use(theirs)) == 3
    finally:
        rows(bare, "DROP OWNED BY tenant_of_one CASCADE; DROP ROLE tenant_of_one")


def test_a_migration_that_fails_changes_nothing_and_those_before_it_stay(bare, knowing):
    broken = Migration(len(KNOWN) + 2, "broken", PLAIN.replace("note", "other") + "SELECT 1/0;")
    knowing([*KNOWN, LATER[0], broken])
    with pytest.raises(HoldfastError, match="division by zero"):
        migrate(bare)
    assert [row[0] for row in applied(bare)] == [one.number for one in (*KNOWN, LATER[0])]
    knowing([*KNOWN, *LATER])
    assert migrate(bare) == list(LATER[1:])


# --- two at once --------------------------------------------------------------------------------


def at_once(url: str, count: int = 4) -> list[Future[list[Migration]]]:
    ready = threading.Barrier(count)

    def one() -> list[Migration]:
        ready.wait()
        return migrate(url)

    with ThreadPoolExecutor(count) as threads:
        return [threads.submit(one) for _ in range(count)]


@pytest.mark.parametrize("level", ["read committed", "serializable"])
def test_of_several_at_once_each_migration_is_applied_by_one(bare, knowing, level):
    """At whatever level the transactions of this database are by default."""
    rows(bare, f"ALTER DATABASE {database(bare)} SET default_transaction_isolation = '{level}'")
    knowing([*KNOWN, *LATER])
    done = sorted(title for one in at_once(bare) for title in titles(one.result()))
    assert done == titles([*KNOWN, *LATER])
    assert len(applied(bare)) == len(done)


def looking_together(patience_seconds: float) -> Callable[[SchemaState], list[Migration]]:
    """Have two wait for each other after they looked for the first time, if that can be."""
    both = threading.Barrier(2)
    first = threading.local()

    def look(found: SchemaState) -> list[Migration]:
        lacking = missing(found)
        if not hasattr(first, "done"):
            first.done = True
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(patience_seconds)
        return lacking

    return look


def test_without_the_lock_two_at_once_would_fail(bare, monkeypatch):
    """The control: both look before either applies, which the lock prevents."""
    monkeypatch.setattr(migrate_module, "missing", looking_together(0.3))
    assert [one.exception() for one in at_once(bare, 2)] == [None, None]
    rows(bare, "DROP SCHEMA holdfast CASCADE")
    monkeypatch.setattr(migrate_module, "missing", looking_together(20.0))
    monkeypatch.setattr(migrate_module, "_lock", lambda _schema: "SELECT 1")
    assert any(one.exception() for one in at_once(bare, 2))


def test_processes_at_once_are_as_safe(bare):
    code = (
        "import sys; from holdfast.engines.postgres.schema.migrate import migrate\n"
        "print(*[one.title for one in migrate(sys.argv[1])])"
    )
    found = [
        subprocess.Popen([sys.executable, "-c", code, bare], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = [process.communicate(timeout=60)[0].split() for process in found]
    assert [process.returncode for process in found] == [0, 0, 0]
    assert sorted(title for titles in said for title in titles) == titles(KNOWN)


def database(url: str) -> str:
    return str(rows(url, "SELECT current_database()")[0][0])


# --- quicker intake ------------------------------------------------------------------------------

AS_BEFORE = """
INSERT INTO holdfast.jobs (
    created_at_us, run_at_us, max_attempts, priority, state, line, tenant, id, scope, queue, task,
    payload
) SELECT 1, 1, 3, 0, 1, 1, 'default', id, '', 'default', 't', '{}' FROM unnest(%s::text[]) AS id
"""
"""Statements of code that has the first migration only, for jobs that are long due."""


def test_jobs_keep_their_order_over_the_second_migration_whoever_enqueues_them(bare, knowing):
    async def claimed() -> list[str]:
        engine = await PostgresEngine.open(bare, options=PostgresOptions(listen=False))
        try:
            claim = await engine.claim(queues=["default"], worker="w", limit=9)
            assert await engine.validate() == []
            return [job.id for job in claim.jobs]
        finally:
            await engine.close()

    knowing(KNOWN[:1])
    migrate(bare)
    with psycopg.connect(bare, autocommit=True) as connection:
        connection.execute(AS_BEFORE, [["b", "a"]])
        knowing(KNOWN)
        assert titles(migrate(bare)) == titles(KNOWN[1:])
        connection.execute(AS_BEFORE, [["d", "c"]])
    assert asyncio.run(claimed()) == ["b", "a", "d", "c"]


def test_dead_letters_from_before_are_counted_and_so_are_those_of_older_code(bare, knowing):
    """Older code settles with the same statements."""

    async def let_die(count: int) -> int:
        engine = await PostgresEngine.open(bare, options=PostgresOptions(listen=False))
        try:
            await engine.enqueue([NewJob(task="t") for _ in range(count)])
            claim = await engine.claim(queues=["default"], worker="w", limit=9)
            failure = Failure.of("timeout", "no answer")
            await engine.settle([dead(job, failure) for job in claim.jobs])
            if migration_files.known() != KNOWN:
                return 0
            assert await engine.validate() == []
            [group] = await engine.groups()
            return group.count
        finally:
            await engine.close()

    before = [one for one in KNOWN if one.number < COUNTED.number]
    knowing(before)
    migrate(bare)
    asyncio.run(let_die(3))
    knowing(KNOWN)
    assert COUNTED in migrate(bare)
    knowing(before)
    asyncio.run(let_die(2))
    knowing(KNOWN)
    assert asyncio.run(let_die(1)) == 6


def test_a_transaction_of_others_is_not_joined_before_the_migration(bare, knowing):
    knowing(KNOWN[:1])
    migrate(bare)
    with psycopg.connect(bare) as connection:
        with pytest.raises(Unavailable, match="run holdfast migrate"):
            joined_verbs.enqueue_sync(connection, [NewJob(task="t")], options=PostgresOptions())
        assert connection.execute("SELECT count(*) FROM holdfast.jobs").fetchall() == [(0,)]


# --- other versions -----------------------------------------------------------------------------


def refused(url: str, said: str) -> None:
    """What this version cannot work with is neither opened nor migrated, and left as it is."""
    before = applied(url)
    for call in (migrate, plan):
        with pytest.raises(Unavailable, match=said):
            call(url)
    with pytest.raises(Unavailable, match=said):
        open_and_close(url)
    assert applied(url) == before


def test_a_migration_that_was_changed_afterwards_is_refused(made, knowing):
    knowing([Migration(1, "work", KNOWN[0].text + "-- A word.\n"), *KNOWN[1:]])
    refused(made, "was made from another 0001_work than this version has")


def test_a_schema_that_is_too_new_asks_for_an_upgrade(made, knowing):
    knowing([*KNOWN, LATER[0]])
    migrate(made)
    knowing(KNOWN)
    refused(made, f"newer Holdfast.*{LATER[0].title}: upgrade Holdfast")


def test_a_newer_schema_that_says_so_is_used_by_older_code(made, knowing):
    newest = KNOWN[-1].number
    friendly = [
        Migration(one.number, one.name, f"-- readable_from: {newest}\n{one.text}") for one in LATER
    ]
    knowing([*KNOWN, *friendly])
    migrate(made)
    knowing(KNOWN)
    assert migrate(made) == []
    assert len(use(made)) == 3
    # One more that does not say so: all of them are needed then.
    knowing([*KNOWN, *friendly, Migration(friendly[-1].number + 1, "last", "SELECT 1;")])
    migrate(made)
    knowing(KNOWN)
    refused(made, "upgrade Holdfast")
    knowing([*KNOWN, *friendly])
    refused(made, "upgrade Holdfast")


async def test_older_workers_go_on_while_the_schema_is_migrated_under_them(made, knowing):
    engine = await PostgresEngine.open(made)
    try:
        await engine.enqueue([NewJob(id="before", task="t")])
        knowing([*KNOWN, *LATER])
        assert migrate(made) == list(LATER)
        await engine.enqueue([NewJob(id="after", task="t")])
        claim = await engine.claim(queues=["default"], worker="w", limit=2)
        assert sorted(job.id for job in claim.jobs) == ["after", "before"]
        assert await engine.settle([completed(job) for job in claim.jobs]) == [None, None]
    finally:
        await engine.close()


def test_a_schema_that_is_behind_is_not_opened(made, knowing):
    knowing([*KNOWN, *LATER])
    lacks = f"is behind.*lacks {', '.join(titles(LATER))}: run holdfast migrate"
    with pytest.raises(Unavailable, match=lacks):
        open_and_close(made)
    migrate(made)
    assert len(use(made)) == 3


def test_a_schema_that_skipped_a_migration_is_refused(made, knowing):
    knowing([*KNOWN, *LATER])
    migrate(made)
    rows(made, "DELETE FROM holdfast.migrations WHERE name = 'noted'")
    refused(made, f"has later migrations than {LATER[0].title}, but not that one")


# --- foreign tables -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "named"),
    [
        ("CREATE TABLE holdfast.jobs (id int)", "jobs"),
        ("CREATE TABLE holdfast.dead (); CREATE TABLE holdfast.jobs ()", "dead, jobs"),
        ("CREATE VIEW holdfast.jobs AS SELECT 1 AS x", "jobs"),
        ("CREATE SEQUENCE holdfast.tokens", "tokens"),
        ("CREATE TABLE holdfast.migrations (id int, batch int)", "migrations"),
        ("CREATE FUNCTION holdfast.now_us() RETURNS int RETURN 1", 'function "now_us"'),
    ],
)
def test_foreign_tables_are_refused_by_name_and_left_alone(bare, theirs, named):
    rows(bare, f"CREATE SCHEMA holdfast; {theirs}")
    before = dumped(bare)
    with pytest.raises(Unavailable, match=f"which it did not make.*{named}.*schema of its own"):
        migrate(bare)
    with pytest.raises(Unavailable, match=r"did not make|run holdfast migrate"):
        open_and_close(bare)
    assert dumped(bare) == before


def test_a_foreign_table_in_the_way_of_a_later_migration_is_refused(made, knowing):
    rows(made, "CREATE TABLE holdfast.boxes (id int)")
    knowing([*KNOWN, *LATER])
    with pytest.raises(Unavailable, match="did not make: boxes"):
        migrate(made)
    assert len(applied(made)) == len(KNOWN)


def test_tables_of_other_names_are_neighbours(bare):
    rows(bare, "CREATE TABLE public.orders (id int)")
    assert migrate(bare, "public") == list(KNOWN)
    assert len(use(bare, "public")) == 3
    assert rows(bare, "SELECT count(*) FROM public.orders") == [(0,)]


def test_schemas_stand_beside_each_other_whatever_they_are_called(made):
    """Also if it is a word of SQL."""
    for schema in ("another", "user", "select"):
        migrate(made, schema)
    for schema in ("holdfast", "another", "user", "select"):
        assert use(made, schema) == [f"{schema}-{n}" for n in range(3)]


# --- --sql --------------------------------------------------------------------------------------


def psql(url: str, text: str) -> subprocess.CompletedProcess[str]:
    command = [str(programs(18) / "psql"), "-X", "-q", "-d", url]
    return subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
    )


def dumped(url: str) -> str:
    """Everything that makes up the schemas of a database."""
    command = [str(programs(18) / "pg_dump"), "--schema-only", "-d", url]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return re.sub(r"(?m)^\\(un)?restrict .*$", "", found.stdout)


@pytest.mark.parametrize("schema", ["holdfast", "user"])
def test_the_script_does_in_psql_what_migrate_does(server18, knowing, schema):
    knowing([*KNOWN, *LATER])
    with server18.bare() as by_hand, server18.bare() as by_us:
        done = psql(by_hand, script(schema))
        assert (done.returncode, done.stderr) == (0, "")
        migrate(by_us, schema)
        assert dumped(by_hand) == dumped(by_us)
        assert applied(by_hand, f'"{schema}"') == applied(by_us, f'"{schema}"')
        assert migrate(by_hand, schema) == []
        assert len(use(by_hand, schema)) == 3


def test_the_script_of_what_is_lacking_is_that_alone(made, knowing):
    assert plan(made) == ([], "")
    assert script("holdfast", []).startswith("-- Schema holdfast has every migration")
    knowing([*KNOWN, *LATER])
    lacking, unseen = plan(made)
    assert (lacking, unseen) == (list(LATER), "")
    assert psql(made, script("holdfast", lacking)).returncode == 0
    assert migrate(made) == []


def test_a_script_that_fails_stops_and_changes_nothing(made, knowing):
    before, books = dumped(made), applied(made)
    again = psql(made, script())
    assert again.returncode != 0
    assert "already exists" in again.stderr
    knowing([*KNOWN, *LATER])
    rows(made, "CREATE TABLE holdfast.boxes (id int)")
    stopped = psql(made, script("holdfast", LATER))
    assert stopped.returncode != 0
    assert [row[1] for row in applied(made)] == [one.name for one in (*KNOWN, LATER[0])]
    twice = psql(made, script("holdfast", LATER[:1]))
    assert twice.returncode != 0
    assert "migrations_pkey" in twice.stderr
    assert books == applied(made)[: len(books)]
    assert before != dumped(made)


def test_without_a_server_the_script_is_everything():
    lacking, unseen = plan("postgresql://u:geheim@127.0.0.1:1/x")
    assert lacking == KNOWN
    assert "no server listens there" in unseen
    assert "geheim" not in unseen
