"""What is kept of each thing that happens, and that it is read back exactly."""

from pathlib import Path

import pytest

from holdfast.engines.journal.history.store import SqliteHistory
from holdfast.model.access import SYSTEM
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import State
from holdfast.model.search import Filter, Order
from holdfast.testing import SimDisk

from .world import World, forget_all


def found(store, **conditions):
    return [job.id for job in store.find(Filter(**conditions), SYSTEM, None, 100, Order.CREATED)]


def rows(store, table):
    with store.reading() as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]  # noqa: S608


def test_a_completed_job_is_one_row_and_its_attempt_comes_from_it(store, world):
    job = world.done("a")
    world.feed(store)
    assert store.get("default", "a") == job
    assert (rows(store, "done"), rows(store, "attempts")) == (1, 0)
    assert store.history(job) == (world.attempts["default", "a"], [])


def test_a_cancelled_job_keeps_how_its_attempt_ended(store, world):
    job = world.cancel(world.claim(world.enqueue("a")), by="ann")
    unclaimed = world.cancel(world.enqueue("b"))
    world.feed(store)
    assert store.get("default", "a") == job
    assert store.history(job) == (world.attempts["default", "a"], world.notes["default", "a"])
    assert store.get("default", "b") == unclaimed
    assert store.history(unclaimed) == ([], [])


def test_every_attempt_is_kept_in_order(store, world):
    job = world.enqueue("a", max_attempts=9)
    for reason in ("timeout", "connection"):
        job = world.retry(world.claim(job, f"worker-{reason}"), Failure.of(reason, reason))
    world.feed(store)
    job = world.complete(world.claim(job))
    world.feed(store)
    attempts, _notes = store.history(job)
    assert attempts == world.attempts["default", "a"]
    assert [attempt.ending for attempt in attempts] == ["retry", "retry", "completed"]


HOSTILE = 'Fehler: "Übergröße" \\ \x01 \n\t \u2028 𝄞 NUL:\0 <END> % _ \' ; DROP TABLE dead; --'


def test_a_dead_job_is_read_back_exactly(store, world):
    failure = Failure(HOSTILE, FailureClass.UNKNOWN, HOSTILE, HOSTILE * 100, 2.5)
    payload = ('{"text":"%s","n":1e300}' % ("ü€𝄞" * 50)).encode()
    job = world.enqueue(
        "ключ-ü",
        payload=payload,
        key="k",
        scope="library:42/book:7",
        tenant="Größe & Co",
        unique="u",
    )
    job = world.die(world.claim(job), failure)
    job = world.die(world.claim(world.replay(job, run="run-1")), failure)
    world.feed(store)
    assert store.get("Größe & Co", "ключ-ü") == job
    assert store.find(Filter(), SYSTEM, None, 9, Order.CREATED) == [job]
    assert store.history(job)[0] == world.attempts["Größe & Co", "ключ-ü"]
    assert store.history(job)[1] == world.notes["Größe & Co", "ключ-ü"]
    (group,) = store.groups(Filter(), SYSTEM, world.now_us)
    assert group.error_reason == HOSTILE


def test_replayed_jobs_leave_the_dead_and_their_history_stays(store, world):
    job = world.dead("a")
    world.feed(store)
    job = world.replay(job)
    world.feed(store)
    assert store.get("default", "a") is None
    assert store.tallies() == {}
    assert store.groups(Filter(), SYSTEM, world.now_us) == []
    assert store.history(job) == (world.attempts["default", "a"], world.notes["default", "a"])
    job = world.complete(world.claim(job))
    world.feed(store)
    assert store.get("default", "a") == job
    assert store.history(job) == (world.attempts["default", "a"], world.notes["default", "a"])


def test_archived_restored_and_edited_jobs_are_as_they_were_recorded_last(store, world):
    job = world.dead("a")
    for step in (world.archive, world.restore, world.edit, world.archive):
        job = step(job)
        world.feed(store)
        assert store.get("default", "a") == job
        assert store.tallies() == {("default", "default", job.state): 1}
        assert len(store.groups(Filter(), SYSTEM, world.now_us)) == (job.state is State.DEAD)
    assert [note.kind for note in store.history(job)[1]] == [
        "archive",
        "restore",
        "edit",
        "archive",
    ]
    assert store.history(job)[1] == world.notes["default", "a"]


def test_an_edit_of_a_job_that_is_not_dead_is_only_noted(store, world):
    job = world.edit(world.enqueue("a"))
    world.feed(store)
    assert store.get("default", "a") is None
    assert store.history(job)[1] == world.notes["default", "a"]


def test_a_purged_job_is_gone_with_everything(store, world):
    for made in (world.dead("a"), world.done("b"), world.archive(world.dead("c"))):
        world.feed(store)
        world.note(made)
        world.feed(store)
        world.purge(made)
        world.feed(store)
        assert store.get("default", made.id) is None
        assert store.history(made)[1] == []
    assert [rows(store, table) for table in ("done", "dead", "attempts", "notes")] == [0, 0, 0, 0]
    assert store.tallies() == {}


@pytest.mark.parametrize("evicted", [True, False])
def test_whatever_happens_within_one_feed_ends_the_same(store, evicted):
    world = World(evicted=evicted)
    a = world.dead("a")
    world.note(a)
    world.purge(world.archive(a))
    b = world.replay(world.dead("b"))
    world.die(world.claim(b))
    world.replay(world.restore(world.archive(world.edit(world.dead("c")))))
    d = world.done("d")
    world.note(d)
    world.purge(d)
    world.note(world.done("e"), "well done")
    world.feed(store)
    assert {job.id: job for job in store.find(Filter(), SYSTEM, None, 9, Order.CREATED)} == {
        job.id: job for job in world.finished()
    }
    for job in world.jobs.values():
        assert store.history(job) == (
            world.attempts.get(("default", job.id), []),
            world.notes.get(("default", job.id), []),
        )
    assert store.tallies() == {
        ("default", "default", State.DEAD): 1,
        ("default", "default", State.COMPLETED): 1,
    }


def test_a_note_on_a_job_that_is_gone_is_no_trouble(store, world):
    job = world.done("a")
    world.purge(job)
    world.jobs["default", "a"] = job
    world.note(job)
    world.feed(store)
    assert store.history(job)[1] == []


def test_an_id_that_came_back_has_a_history_of_its_own(store, world):
    first = world.retry(world.claim(world.enqueue("a")))
    world.note(first, "the first one")
    first = world.complete(world.claim(first))
    world.feed(store)
    store.hide(world.pass_time())
    assert store.get("default", "a") is None
    del world.jobs["default", "a"]
    second = world.enqueue("a")
    world.note(second, "the second one")
    second = world.complete(world.claim(second))
    world.feed(store)
    assert store.get("default", "a") == second
    assert found(store) == ["a"]
    assert [note.text for note in store.history(second)[1]] == ["the second one"]
    assert len(store.history(second)[0]) == 1
    assert forget_all(store, store.forget_before_us) == {("default", "default", State.COMPLETED): 1}
    assert store.get("default", "a") == second
    assert rows(store, "notes") == 1
    assert rows(store, "attempts") == 0


def test_the_audit_is_kept_in_its_order(store, world):
    for number in range(5):
        world.audit(f"act-{number}")
    world.feed(store)
    records = [one.effect.record for one in world.recorded]
    assert store.audit(0, 100) == records
    assert store.audit(2, 2) == records[2:4]
    assert store.audit(5, 2) == []


def test_feeding_again_changes_nothing(store, world):
    job = world.dead("a")
    world.done("b")
    world.audit()
    for _ in range(3):
        world.feed(store)
    store.feed(world.recorded[:4], 4)
    assert store.checkpoint == world.seq
    assert store.tallies() == {
        ("default", "default", State.DEAD): 1,
        ("default", "default", State.COMPLETED): 1,
    }
    assert len(store.history(job)[0]) == 1


def test_nothing_after_the_checkpoint_is_taken_in(store, world):
    world.done("a")
    world.done("b")
    store.feed(world.recorded, 3)
    assert (store.checkpoint, found(store)) == (3, ["a"])
    store.feed(world.recorded, world.seq)
    assert found(store) == ["a", "b"]


def test_a_checkpoint_moves_without_anything_to_keep(store):
    store.feed([], 17)
    assert store.checkpoint == 17
    store.feed([], 5)
    assert store.checkpoint == 17


def test_large_bodies_are_written_in_several_statements(store, world, monkeypatch):
    monkeypatch.setattr("holdfast.engines.journal.history.writer.CHUNK_BYTES", 5_000)
    for number in range(20):
        world.dead(f"d{number}", payload=b'{"x":"' + b"y" * 1_500 + b'"}')
        world.done(f"c{number}")
    world.feed(store)
    assert len(found(store)) == 40
    for job in world.finished():
        assert store.get("default", job.id) == job
        assert len(store.history(job)[0]) == 1


def test_what_was_kept_is_there_after_opening_again(disk, world):
    store = SqliteHistory.open(disk.database())
    dead = world.dead("a")
    done = world.done("b")
    world.feed(store)
    store.close()
    again = SqliteHistory.open(disk.database(), expected_seq=world.seq, last_seq=world.seq)
    assert again.checkpoint == world.seq
    assert again.get("default", "a") == dead
    assert again.get("default", "b") == done
    world.dead("c")
    world.feed(again)
    assert again.groups(Filter(), SYSTEM, world.now_us)[0].count == 2
    again.close()


def test_the_file_is_for_its_owner_alone(disk):
    store = SqliteHistory.open(disk.database())
    store.feed([], 1)
    modes = {path.stat().st_mode & 0o777 for path in Path(disk.root).glob("cold.sqlite*")}
    assert modes == {0o600}
    store.close()


def test_a_simulated_disk_keeps_what_was_committed(world):
    disk = SimDisk()
    store = SqliteHistory.open(disk.database())
    job = world.dead("a")
    world.feed(store)
    again = SqliteHistory.open(disk.crash().database(), expected_seq=world.seq)
    assert again.get("default", "a") == job
    after_cut = SqliteHistory.open(disk.crash(7).database(), expected_seq=world.seq)
    assert after_cut.get("default", "a") == job
