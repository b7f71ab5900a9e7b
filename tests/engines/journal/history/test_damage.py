"""Damage is found, named, and never taken for history."""

import logging
import random
import sqlite3
from pathlib import Path

import pytest

from holdfast.engines.journal.history import database
from holdfast.engines.journal.history.check import verify
from holdfast.engines.journal.history.store import SqliteHistory
from holdfast.model.access import SYSTEM
from holdfast.model.errors import (
    AuditAltered,
    CorruptHistory,
    HistoryMissing,
    StorageError,
    UnknownFormat,
)
from holdfast.model.search import EVERYTHING, Filter, Order, place_of
from holdfast.testing import SimDisk

from .world import World


@pytest.fixture
def file(disk, world):
    """A closed store with something in every table."""
    store = SqliteHistory.open(disk.database())
    for number in range(300):
        world.note(world.archive(world.dead(f"d{number}")))
        world.done(f"c{number}")
        world.audit()
    for number in range(20):
        world.dead(f"e{number}", scope=f"s{number % 3}")
    world.feed(store)
    store.close()
    return Path(disk.root) / "cold.sqlite"


def change(file, sql, *values):
    connection = sqlite3.connect(file)
    with connection:
        changed = connection.execute(sql, values).rowcount
    connection.close()
    return changed


def test_a_missing_file_that_is_relied_on_is_said_to_be_missing(disk):
    with pytest.raises(HistoryMissing, match=r"cold\.sqlite is missing.*up to seq 17"):
        SqliteHistory.open(disk.database(), expected_seq=17)
    assert not disk.database().exists(), "nothing was changed"
    SqliteHistory.open(disk.database()).close()
    with pytest.raises(HistoryMissing, match=r"ends at seq 0.*up to seq 17"):
        SqliteHistory.open(disk.database(), expected_seq=17)


def test_an_empty_file_that_is_relied_on_is_as_good_as_missing(disk):
    (Path(disk.root) / "cold.sqlite").touch()
    with pytest.raises(HistoryMissing):
        SqliteHistory.open(disk.database(), expected_seq=1)
    SqliteHistory.open(disk.database()).close()


def test_a_store_that_goes_further_than_the_log_is_refused(disk, file, world):
    SqliteHistory.open(disk.database(), last_seq=world.seq).close()
    with pytest.raises(CorruptHistory, match="the log only to"):
        SqliteHistory.open(disk.database(), last_seq=world.seq - 1)


@pytest.mark.parametrize(
    "content", [b"not a database " * 1_000, b"SQLite format 3\0" + b"\xff" * 5_000]
)
def test_what_is_no_database_is_refused(disk, content):
    (Path(disk.root) / "cold.sqlite").write_bytes(content)
    with pytest.raises(CorruptHistory, match=r"cold\.sqlite is damaged"):
        SqliteHistory.open(disk.database())


def test_a_database_of_somebody_else_is_refused_and_left_alone(disk):
    path = Path(disk.root) / "cold.sqlite"
    change(path, "CREATE TABLE theirs (x)")
    with pytest.raises(CorruptHistory, match="another program"):
        SqliteHistory.open(disk.database())
    assert change(path, "INSERT INTO theirs VALUES (1)") == 1


def test_a_newer_version_is_refused(disk, file):
    change(file, f"PRAGMA user_version = {database.SCHEMA_VERSION + 1}")
    with pytest.raises(UnknownFormat, match=f"schema version {database.SCHEMA_VERSION + 1}"):
        SqliteHistory.open(disk.database())


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE checkpoint SET seq = seq + 1",
        "UPDATE checkpoint SET forget_before_us = 5",
        "UPDATE checkpoint SET seq = 'x'",
        "DELETE FROM checkpoint",
    ],
)
def test_a_damaged_checkpoint_is_refused(disk, file, sql):
    change(file, sql)
    with pytest.raises(CorruptHistory, match="table checkpoint"):
        SqliteHistory.open(disk.database())


@pytest.mark.parametrize("pages", [0.25, 0.5, 0.9])
def test_a_file_cut_short_is_refused(disk, file, pages):
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * pages)])
    with pytest.raises(CorruptHistory):
        SqliteHistory.open(disk.database())


READS = {
    "done": lambda store: store.get("default", "c7"),
    "dead_bodies": lambda store: store.get("default", "d7"),
    "attempts": lambda store: store.history(store.get("default", "d7")),
    "notes": lambda store: store.history(store.get("default", "d7")),
}
BODIES = ["replace(body, 'd', 'e')", "''", "CAST(x'ff00ff' AS TEXT)", "body || ' '"]


@pytest.mark.parametrize("table", READS)
@pytest.mark.parametrize("body", BODIES)
def test_a_damaged_body_is_never_given_out(disk, file, table, body):
    change(file, f"UPDATE {table} SET body = {body}")  # noqa: S608 - ours
    store = SqliteHistory.open(disk.database())
    with pytest.raises(CorruptHistory, match=f"table {table}") as caught:
        READS[table](store)
    assert caught.value.table == table
    assert "journal verify" in str(caught.value)
    assert any(f"table {table} row" in problem for problem in verify(store))
    if table in ("done", "dead_bodies"):
        with pytest.raises(CorruptHistory):
            store.find(EVERYTHING, SYSTEM, None, 1_000, Order.CREATED)
    store.close()


@pytest.mark.parametrize("number", [1, 7])
@pytest.mark.parametrize("body", BODIES)
def test_a_damaged_entry_of_the_audit_is_named_and_never_given_out(disk, file, number, body):
    assert change(file, f"UPDATE audit SET body = {body} WHERE number = ?", number) == 1  # noqa: S608 - ours
    store = SqliteHistory.open(disk.database())
    with pytest.raises(AuditAltered, match=f"entry {number} of the audit was altered") as caught:
        store.audit(0, 1_000)
    assert caught.value.number == number
    assert "audit verify" in str(caught.value)
    assert any(f"table audit row {number}" in problem for problem in verify(store))
    assert len(store.audit(number, 1_000)) == 300 - number, "those after it can be read"
    store.close()


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("UPDATE tallies SET count = count + 1", "table tallies disagrees"),
        ("UPDATE groups SET scopes = 9", "table groups disagrees"),
        ("UPDATE group_tenants SET count = 9", "table group_tenants disagrees"),
        ("UPDATE group_scopes SET count = 9", "table group_scopes disagrees"),
        ("UPDATE kinds SET count = 9", "table kinds disagrees"),
        ("UPDATE dead SET task = 'other' WHERE seq = 3", "table dead row 3 says"),
        ("UPDATE done SET queue = 'other'", "table done row"),
        ("DELETE FROM dead_bodies WHERE seq = 4", "table dead_bodies disagrees"),
        ("DELETE FROM audit WHERE number = 5", "audit record 6 does not follow"),
        ("DELETE FROM dead WHERE id = 'e3'", "table tallies disagrees"),
    ],
)
def test_verify_finds_what_does_not_belong_together(disk, file, sql, says):
    store = SqliteHistory.open(disk.database())
    assert verify(store) == []
    store.close()
    seq = sqlite3.connect(file).execute("SELECT min(seq) FROM dead").fetchone()[0]
    sql = sql.replace("seq = 3", f"seq = {seq}").replace("seq = 4", f"seq = {seq}")
    assert change(file, sql)
    store = SqliteHistory.open(disk.database())
    assert says.replace("row 3", f"row {seq}") in "\n".join(verify(store))
    store.close()


def test_flipped_bytes_are_found_or_harmless(disk, file, world):
    """Whatever byte is flipped: an error of ours, or exactly what was recorded."""
    content = file.read_bytes()
    rng = random.Random(7)
    expected = {(job.tenant, job.id): job for job in world.finished()}
    found = 0
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(3):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        for name in ("cold.sqlite-wal", "cold.sqlite-shm"):
            (file.parent / name).unlink(missing_ok=True)
        file.write_bytes(damaged)
        try:
            store = SqliteHistory.open(disk.database())
        except StorageError:
            found += 1
            continue
        problems = verify(store)
        try:
            for job in store.find(EVERYTHING, SYSTEM, None, 1_000, Order.CREATED):
                assert job == expected[job.tenant, job.id]
        except StorageError:
            assert problems
        found += bool(problems)
        store.close()
    assert found > 40


def test_a_damaged_file_is_set_aside_and_a_fresh_one_begins(disk, file):
    file.write_bytes(b"rubbish" * 1_000)
    first = disk.database().set_aside()
    assert first == f"{file}.damaged-1"
    store = SqliteHistory.open(disk.database(), begin_at=500)
    assert store.checkpoint == 500
    world = World()
    world.seq = 500
    job = world.dead("a")
    world.feed(store)
    store.close()
    store = SqliteHistory.open(disk.database(), expected_seq=500)
    assert store.get("default", "a") == job
    store.close()
    assert disk.database().set_aside().endswith("damaged-2")
    assert Path(first).read_bytes().startswith(b"rubbish")


def test_a_simulated_database_is_set_aside_too(world):
    disk = SimDisk()
    store = SqliteHistory.open(disk.database())
    world.dead("a")
    world.feed(store)
    store.close()
    disk.database().set_aside()
    with pytest.raises(HistoryMissing):
        SqliteHistory.open(disk.database(), expected_seq=1)
    fresh = SqliteHistory.open(disk.database())
    assert fresh.find(Filter(), SYSTEM, None, 9, Order.CREATED) == []


def test_errors_of_the_database_are_ours(disk, world):
    store = SqliteHistory.open(disk.database())
    store._writer.close()
    world.dead("a")
    with pytest.raises(StorageError, match=r"cold\.sqlite cannot be read or written"):
        world.feed(store)


def as_version_2(file):
    """Make the database one of version 2, whose groups had no task and no HTTP status."""
    for sql in (
        """CREATE TABLE old (kind INTEGER PRIMARY KEY, queue, error_reason, failure_class, count,
           UNIQUE (queue, error_reason, failure_class))""",
        """INSERT INTO old SELECT min(kind), queue, error_reason, failure_class, sum(count)
           FROM kinds GROUP BY 2, 3, 4""",
        """UPDATE dead SET kind = (SELECT old.kind FROM kinds JOIN old
           USING (queue, error_reason, failure_class) WHERE kinds.kind = dead.kind)""",
        *("DROP TABLE kinds", "ALTER TABLE old RENAME TO kinds", "DROP TABLE group_hours"),
        *("DELETE FROM groups", "DELETE FROM group_tenants", "DELETE FROM group_scopes"),
        "ALTER TABLE groups ADD COLUMN hour_us INTEGER NOT NULL DEFAULT 0",
        *("DROP INDEX dead_by_finish", "DROP INDEX dead_by_attempt"),
        "PRAGMA user_version = 2",
    ):
        change(file, sql)


def as_version_1(file):
    """Make the database one of version 1, which did not know how many bytes it has."""
    as_version_2(file)
    change(file, "DROP TABLE done_size")
    change(file, "PRAGMA user_version = 1")


def test_a_database_of_version_1_is_upgraded_once_and_that_is_logged(disk, file, world, caplog):
    caplog.set_level(logging.INFO, "holdfast.journal")
    store = SqliteHistory.open(disk.database())
    for number in range(3):
        world.done(f"more-{number}", payload=b'{"x":"' + b"y" * 1_000 + b'"}')
    world.feed(store)
    size_bytes = store.size_bytes
    assert size_bytes > 3_000
    store.close()
    as_version_1(file)
    reader = SqliteHistory.open(disk.database(), upgrade=False)
    assert verify(reader) == []
    assert reader.get("default", "more-0") is not None
    last = reader.find(EVERYTHING, SYSTEM, None, 1_000, Order.LAST_FINISHED)
    assert last == sorted(reader.jobs(), key=lambda job: place_of(job, Order.FINISHED))[::-1]
    assert reader.count_matching(EVERYTHING, SYSTEM, 1_000) == len(last)
    reader.close()
    for _ in range(2):
        store = SqliteHistory.open(disk.database())
        assert store.size_bytes == size_bytes
        assert verify(store) == []
        store.close()
    said = [line.getMessage() for line in caplog.records if "migrated" in line.getMessage()]
    assert len(said) == 1
    assert "from_schema=1 to_schema=3" in said[0]


def test_groups_of_version_2_get_their_task(disk, file, world):
    store = SqliteHistory.open(disk.database())
    for number in range(6):
        world.dead(f"more-{number}", task=f"t{number % 3}", tenant=f"tenant-{number % 2}")
    world.feed(store)
    before = store.groups(Filter(), SYSTEM, world.now_us)
    assert len(before) >= 3
    store.close()
    as_version_2(file)
    reader = SqliteHistory.open(disk.database(), upgrade=False)
    assert verify(reader) == []
    assert reader.groups(Filter(), SYSTEM, world.now_us) == before
    reader.close()
    store = SqliteHistory.open(disk.database())
    assert verify(store) == []
    assert store.groups(Filter(), SYSTEM, world.now_us) == before
    found = store.find(Filter(tasks=("t1",)), SYSTEM, None, 9, Order.CREATED)
    assert [job.id for job in found] == ["more-1", "more-4"]
    world.dead("later", task="t1")
    world.feed(store)
    assert verify(store) == []
    store.close()


def test_the_size_follows_what_is_stored_forgotten_and_purged(disk, file, world):
    store = SqliteHistory.open(disk.database())
    jobs = [world.done(f"more-{number}", payload=b'{"x":1}') for number in range(4)]
    world.feed(store)
    world.purge(jobs[3])
    world.feed(store)
    before = store.size_bytes
    store.forget_excess(before - 1)
    assert 0 < store.size_bytes < before
    assert verify(store) == []
    change(file, "UPDATE done_size SET bytes = bytes + 1")
    assert any("done_size" in problem for problem in verify(store)), "the check can fail"
    store.close()
