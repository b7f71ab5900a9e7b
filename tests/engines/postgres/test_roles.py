"""Three roles with few rights: each does all that it is for, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from importlib.resources import files

import psycopg
import pytest
from psycopg import errors as pg

from holdfast.engines.contract import Engine, EngineOptions
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.engines.postgres.schema import migration_files, rights
from holdfast.engines.postgres.schema.migrate import migrate
from holdfast.engines.postgres.schema.migration_files import Migration
from holdfast.engines.postgres.schema.roles import RoleNames, roles_script
from holdfast.model.audit import Attribution, AuditEntry, AuditHead, follows, head_of
from holdfast.model.errors import InvalidInput, Unavailable
from holdfast.model.job import NewJob
from holdfast.model.read_model import ColumnType, ReadModel
from holdfast.testing import VirtualClock
from holdfast.testing.conformance import EngineConformance

from .roles import VIEWS, RoleDatabases, as_user, execute, give_roles
from .servers import Databases
from .test_conformance import postgres_options

BOOKS = ReadModel(
    name="books",
    columns={"id": ColumnType.TEXT, "title": ColumnType.TEXT},
    key=("id",),
    search=("title",),
)
WHOLE = "HOLDFAST_TEST_EXAMPLES" in os.environ
"""Set by ``make soak``: the whole suite. Else every sixth test of it."""


@pytest.fixture
def url(roles18: RoleDatabases) -> Iterator[str]:
    with roles18.fresh() as fresh:
        yield fresh


@pytest.mark.sample(6)
class TestRunRole(EngineConformance):
    @pytest.fixture(autouse=True)
    def server(self, roles18: RoleDatabases) -> Iterator[None]:
        with contextlib.ExitStack() as self._stack:
            self._databases = roles18
            yield

    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        url = as_user(self._stack.enter_context(self._databases.fresh()), "runner")
        chosen = postgres_options(options, projection_schema=VIEWS)
        return await PostgresEngine.open(url, clock=clock, options=chosen)


for _number, _name in enumerate(dir(EngineConformance)):
    if _name.startswith("test_") and _number % 6 and not WHOLE:
        setattr(TestRunRole, _name, None)


def partitions(url: str) -> set[str]:
    found = execute(url, "SELECT inhrelid::regclass::text FROM pg_inherits")
    return {str(name) for (name,) in found}


async def test_the_run_role_makes_and_drops_partitions_and_has_no_right_on_them(url):
    clock = VirtualClock()
    engine = await PostgresEngine.open(as_user(url, "runner"), clock=clock)
    try:
        before = partitions(url)
        made = await engine.prune()
        assert made.days_made > 0
        new = partitions(url) - before
        clock.advance(40 * 86_400)
        assert (await engine.prune()).days_dropped >= made.days_made
    finally:
        await engine.close()
    assert any("history_2" in name for name in new)
    assert any("chronicle_events_2" in name for name in partitions(url))
    owners = "SELECT DISTINCT relowner::regrole::text, relacl FROM pg_class WHERE relispartition"
    of_days = f"{owners} AND relkind = 'r' AND relname ~ '_[0-9]+$'"
    for owner, acl in execute(url, of_days):
        assert owner == "holdfast_migrate"
        assert acl is None or "run" not in str(acl)


def test_only_days_of_history_can_be_dropped(url):
    for name in ("holdfast.jobs", "holdfast.history_rest", "holdfast.chronicle_events_rest"):
        with pytest.raises(pg.WrongObjectType, match="is not a day of history"):
            execute(as_user(url, "runner"), f"SELECT holdfast.drop_day('{name}'::regclass)")


async def test_what_one_login_makes_for_a_projection_another_can_change(url):
    """Tables belong to the role, and whoever may look sees them."""
    options = PostgresOptions(projection_schema=VIEWS)
    engines = [
        await PostgresEngine.open(as_user(url, user), options=options)
        for user in ("runner", "other_runner")
    ]
    try:
        first, second = (engine.read_models for engine in engines)
        await first.create(BOOKS, 1)
        await first.publish(BOOKS, 1)
        await second.create(BOOKS, 2)
        await second.publish(BOOKS, 2)
        await first.drop(BOOKS, 1)
        await second.publish_outbox("books")
        assert await first.generations(BOOKS) == [2]
        for name in ("books", "books_outbox_events"):
            assert execute(as_user(url, "reader"), f"SELECT * FROM {VIEWS}.{name}") == []  # noqa: S608
        with pytest.raises(pg.InsufficientPrivilege):
            execute(as_user(url, "reader"), f"DELETE FROM {VIEWS}.books")  # noqa: S608
    finally:
        for engine in engines:
            await engine.close()


async def test_who_may_only_read_is_told_what_to_grant(url):
    with pytest.raises(Unavailable) as refused:
        await PostgresEngine.open(as_user(url, "reader"))
    assert "lacks INSERT, UPDATE, DELETE on holdfast.jobs" in str(refused.value)
    assert "GRANT holdfast_run TO reader" in str(refused.value)
    engine = await PostgresEngine.open(as_user(url, "reader"), reading=True)
    try:
        assert await engine.queues() == []
        with pytest.raises(Unavailable, match=r"permission denied for .*migrate --sql --roles"):
            await engine.enqueue([NewJob(task="t")])
    finally:
        await engine.close()


FORGET = (
    "CREATE TEMP TABLE t (n int); CREATE TRIGGER x AFTER TRUNCATE ON t FOR EACH STATEMENT"
    " EXECUTE FUNCTION holdfast.forget_counts_of_dead()"
)
TRIED_BY_A_READER = (
    "UPDATE holdfast.jobs SET priority = 9",
    "DELETE FROM holdfast.audit",
    "INSERT INTO holdfast.flags VALUES ('f', true)",
    "TRUNCATE holdfast.dead",
    "SELECT nextval('holdfast.tokens')",
    "SELECT holdfast.next_places()",
    "SELECT holdfast.make_day(0)",
    "SELECT holdfast.recount_dead()",
    "SELECT FROM holdfast.loops FOR UPDATE",
    "CREATE TABLE holdfast.mine (n int)",
    f"CREATE TABLE {VIEWS}.mine (n int)",
    FORGET,
)
TRIED_BY_A_RUNNER = (
    "DELETE FROM holdfast.audit",
    "UPDATE holdfast.audit SET hash = ''",
    "UPDATE holdfast.chronicle_events SET reason = ''",
    "DELETE FROM holdfast.chronicle_events_rest",
    "DELETE FROM holdfast.migrations",
    "TRUNCATE holdfast.jobs",
    "DROP TABLE holdfast.jobs",
    "CREATE TABLE holdfast.mine (n int)",
    "CREATE FUNCTION holdfast.now_us2() RETURNS int LANGUAGE sql RETURN 1",
    "SET ROLE holdfast_migrate",
)


@pytest.mark.parametrize(
    ("user", "text"),
    [("reader", one) for one in TRIED_BY_A_READER]
    + [("runner", one) for one in TRIED_BY_A_RUNNER]
    + [("stranger", "SELECT FROM holdfast.jobs"), ("stranger", "SELECT holdfast.now_us()")],
)
def test_what_a_role_is_not_for_is_denied(url, user, text):
    with pytest.raises(pg.InsufficientPrivilege):
        execute(as_user(url, user), text)


def test_control_with_execute_for_public_a_reader_forgets_the_counts(url):
    execute(url, "GRANT EXECUTE ON FUNCTION holdfast.forget_counts_of_dead() TO PUBLIC")
    execute(as_user(url, "reader"), f"{FORGET}; TRUNCATE t")


def test_nothing_that_acts_as_the_owner_is_for_everybody(url):
    query = """
        SELECT p.oid::regprocedure::text, has_function_privilege('reader', p.oid, 'EXECUTE'),
            p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp']
        FROM pg_proc AS p
        WHERE p.pronamespace = 'holdfast'::regnamespace AND p.prosecdef
    """
    found = execute(url, query)
    assert len(found) >= 5
    assert {row[1:] for row in found} == {(False, True)}


def test_a_right_that_no_statement_uses_is_not_given():
    """Every INSERT, UPDATE and DELETE of the run role stands in a statement."""
    texts = [
        re.sub(r"--.*", "", file.read_text())
        for file in files("holdfast.engines.postgres").joinpath("sql").iterdir()
        if file.name.endswith(".sql") and file.name not in LOADING
    ]
    used: set[tuple[str, str]] = set()
    for text in texts:
        changed = re.findall(r"(INSERT INTO|UPDATE|DELETE FROM|MERGE INTO) holdfast\.(\w+)", text)
        used |= {(name, what.split()[0]) for what, name in changed}
        used |= {(name, "UPDATE") for _, name in changed if "DO UPDATE" in text}
        if "FOR UPDATE" in text:
            used |= {(name, "UPDATE") for name in re.findall(r"FROM holdfast\.(\w+)", text)}
        for name in re.findall(r"MERGE INTO holdfast\.(\w+)", text):
            used |= {(name, what) for what in ("INSERT", "UPDATE", "DELETE")}
    given = {
        (name, what)
        for name, rights_on in rights.run_rights().items()
        for what in rights_on
        if what not in ("SELECT", "USAGE")
    }
    assert given <= used


LOADING = {"begin_loading.sql", "advance_loading.sql", "end_loading.sql", "add_migration.sql"}


def grants(url: str) -> list[tuple[object, ...]]:
    return execute(
        url,
        "SELECT c.relname::text, c.relowner::regrole::text, c.relacl::text FROM pg_class AS c"
        " WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')"
        " UNION ALL SELECT p.oid::regprocedure::text, p.proowner::regrole::text, p.proacl::text"
        " FROM pg_proc AS p WHERE p.pronamespace = 'holdfast'::regnamespace ORDER BY 1",
    )


def test_the_script_takes_what_is_too_much_and_may_run_again(url):
    before = grants(url)
    execute(url, "GRANT ALL ON ALL TABLES IN SCHEMA holdfast TO PUBLIC, holdfast_read")
    execute(url, "REVOKE SELECT ON holdfast.jobs FROM holdfast_run, holdfast_read")
    execute(url, "CREATE TABLE holdfast.of_people (n int)")
    execute(url, "GRANT SELECT ON holdfast.of_people TO PUBLIC")
    give_roles(url)
    after = grants(url)
    of_people = [row for row in after if row[0] == "of_people"]
    assert "=r/" in str(of_people[0][2]), "what Holdfast did not make is left as it is"
    tables = {row[0]: _set(row[2]) for row in after if row not in of_people}
    assert {row[0]: _set(row[2]) for row in before if row[0] in RELATIONS} == {
        name: acl for name, acl in tables.items() if name in RELATIONS
    }


RELATIONS = set(rights.run_rights())


def _set(acl: object) -> frozenset[str]:
    return frozenset(str(acl).strip("{}").split(","))


async def test_a_store_that_was_made_by_one_user_is_handed_over(server18):
    """Also in a schema of another name, by an administrator who is no superuser."""
    with server18.bare() as url:
        execute(url, "DROP ROLE IF EXISTS dba; CREATE ROLE dba LOGIN CREATEROLE")
        execute(url, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO dba',"
                     " current_database()); END $$")  # fmt: skip
        dba = as_user(url, "dba")
        migrate(dba, "work_of_all")
        names = RoleNames("hm", "hr", "ho")
        try:
            script = roles_script("work_of_all", "views_of_all", (), names)
            for _twice in "ab":
                execute(dba, script)
            execute(dba, "CREATE ROLE plain LOGIN; GRANT hr TO plain")
            engine = await PostgresEngine.open(
                as_user(url, "plain"), options=PostgresOptions(schema="work_of_all")
            )
            try:
                await engine.enqueue([NewJob(task="t")])
                assert (await engine.prune()).days_made > 0
            finally:
                await engine.close()
            owners = execute(
                url,
                "SELECT DISTINCT relowner::regrole::text FROM pg_class"
                " WHERE relnamespace = 'work_of_all'::regnamespace",
            )
            assert owners == [("hm",)]
        finally:
            for role in ("plain", "ho", "hr", "hm"):
                execute(url, f"DROP OWNED BY {role} CASCADE")
            execute(url, "DROP ROLE plain, hm, hr, ho")
            execute(url, "REASSIGN OWNED BY dba TO CURRENT_USER; DROP OWNED BY dba; DROP ROLE dba")


def test_what_a_member_migrates_belongs_to_the_role(url, monkeypatch):
    known = migration_files.known()
    text = "-- readable_from: 1\nCREATE TABLE holdfast.boxes (id bigint PRIMARY KEY);\n"
    later = Migration(len(known) + 1, "boxes", text)
    monkeypatch.setattr(migration_files, "known", lambda: (*known, later))
    with pytest.raises(Unavailable, match="permission denied"):
        migrate(as_user(url, "runner"))
    assert migrate(as_user(url, "migrator")) == [later]
    found = execute(
        url,
        "SELECT relowner::regrole::text, has_table_privilege('runner', oid, 'DELETE'),"
        " has_table_privilege('reader', oid, 'SELECT'),"
        " has_table_privilege('reader', oid, 'INSERT')"
        " FROM pg_class WHERE oid = 'holdfast.boxes'::regclass",
    )
    assert found == [("holdfast_migrate", True, True, False)]


@pytest.mark.parametrize(
    "names", [RoleNames("a", "a", "b"), RoleNames(run="x; DROP TABLE y"), RoleNames(read="pg_r")]
)
def test_names_that_cannot_be_roles_are_refused(names):
    with pytest.raises(InvalidInput):
        roles_script("holdfast", VIEWS, (), names)


# --- locks ------------------------------------------------------------------------------------

WHY = Attribution("ops", "test", (AuditEntry("flag.set", "flag", "paused", "ops"),))
HELD = (
    *("loop/reclaim", "loop/prune", "loop/samples", "loop/audit_log", "audit", "dead_changes"),
    *("key/default/default/slow", "operations", "groups", "fleet", "subscriptions"),
)


@contextlib.contextmanager
def holding_every_lock(url: str) -> Iterator[None]:
    """Have somebody without any right hold the advisory locks of these names."""
    with psycopg.connect(as_user(url, "stranger"), autocommit=True) as connection:
        for name in HELD:
            connection.execute(
                "SELECT pg_advisory_lock(hashtextextended(%s, 0))", [f"holdfast.{name}"]
            )
        yield


async def reclaims_and_audits(url: str) -> None:
    """End a lease in turn, and pause everything, while a stranger holds locks."""
    clock = VirtualClock()
    options = PostgresOptions(listen=False, statement_timeout_seconds=2.0)
    engine = await PostgresEngine.open(as_user(url, "runner"), clock=clock, options=options)
    try:
        keyed = NewJob(task="t", id="keyed", key="slow")
        await engine.enqueue([NewJob(task="t", id="plain"), keyed])
        held = (await engine.claim(queues=["default"], worker="w", limit=2)).jobs
        assert len(held) == 2
        clock.advance(3_600)
        with holding_every_lock(url):
            lost = (await engine.reclaim(every_seconds=1.0)).lost
            assert [job.id for job in lost] == ["plain"], "the other one's key is held"
            await engine.set_flag("paused", WHY, on=True)
            assert [one.number for one in await engine.audited()] == [1]
            assert len(await engine.take_unlogged_audit(every_seconds=1.0)) == 1
            assert (await engine.prune(every_seconds=1.0)).days_made > 0
            clock.advance(2)
        lost = (await engine.reclaim(every_seconds=1.0)).lost
        assert [job.id for job in lost] == ["keyed"]
    finally:
        await engine.close()


async def test_who_may_only_connect_holds_up_no_loop_and_no_audit(url):
    await reclaims_and_audits(url)


@pytest.mark.parametrize("name", ["try_periodic_lock", "lock_audit", "try_lock_keys"])
async def test_control_with_advisory_locks_a_stranger_stops_them(url, rewritten, name):
    old = {
        "try_periodic_lock": "SELECT 1 WHERE pg_try_advisory_xact_lock("
        "holdfast.lock_number('loop/' || %(name)s::text))",
        "lock_audit": "SELECT pg_advisory_xact_lock(holdfast.lock_number('audit'))",
        "try_lock_keys": "SELECT n.name FROM unnest(%(names)s::text[]) AS n (name)"
        " WHERE pg_advisory_xact_lock(holdfast.lock_number(n.name)) IS NULL",
    }
    rewritten(lambda read, text: old[name] if read == name else text)
    with pytest.raises((AssertionError, Unavailable)):
        await reclaims_and_audits(url)


async def test_a_lock_that_is_held_is_given_up_with_what_to_do(url):
    options = PostgresOptions(listen=False, statement_timeout_seconds=0.5)
    engine = await PostgresEngine.open(as_user(url, "runner"), options=options)
    try:
        with holding_every_lock(url), pytest.raises(Unavailable, match="holdfast doctor shows who"):
            await engine.enqueue([NewJob(task="t", key="slow")])
        await engine.enqueue([NewJob(task="t", key="slow")])
    finally:
        await engine.close()


def test_entries_of_both_mechanisms_make_one_chain(url):
    """An older process locks the audit by an advisory lock: the primary key decides."""
    with psycopg.connect(as_user(url, "runner")) as older:
        older.execute("SELECT pg_advisory_xact_lock(holdfast.lock_number('audit'))")
        row = "INSERT INTO holdfast.audit (number, hash, record) VALUES (1, %s, '')"
        older.execute(row, ["a"])
        with psycopg.connect(as_user(url, "runner")) as newer:
            newer.execute("SELECT FROM holdfast.loops WHERE name = 'audit' FOR UPDATE")
            newer.execute("SET lock_timeout = '50ms'")
            with pytest.raises(pg.LockNotAvailable):
                newer.execute(row, ["b"])
            newer.rollback()
            older.commit()
            with pytest.raises(pg.UniqueViolation):
                newer.execute(row, ["b"])


async def appends_at_once(url: str) -> None:
    """Append to the audit by two engines at once, and verify the chain."""
    options = PostgresOptions(listen=False)
    runner = as_user(url, "runner")
    engines = [await PostgresEngine.open(runner, options=options) for _number in range(2)]
    try:
        entry = AuditEntry("test", "job", "a", "ops")
        await asyncio.gather(*(engine.audit([entry]) for engine in engines for _n in range(8)))
        head = AuditHead()
        for record in await engines[0].audited():
            assert follows(head, record)
            head = head_of(record)
        assert head.count == 16
    finally:
        for engine in engines:
            await engine.close()


async def test_without_a_common_lock_the_primary_key_keeps_the_audit_a_chain(url, rewritten):
    """As during a deploy, when older processes have another lock."""
    rewritten(lambda read, text: "SELECT 1" if read == "lock_audit" else text)
    await appends_at_once(url)


async def test_control_without_lock_and_primary_key_the_chain_breaks(url, rewritten):
    rewritten(lambda read, text: "SELECT 1" if read == "lock_audit" else text)
    execute(url, "ALTER TABLE holdfast.audit DROP CONSTRAINT audit_pkey")
    with pytest.raises(AssertionError):
        await appends_at_once(url)


def test_servers_of_both_versions_take_the_script(server16: Databases):
    with server16.fresh() as url:
        give_roles(url)
        give_roles(url)
