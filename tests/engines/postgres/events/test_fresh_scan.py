"""Marks that were taken are not passed by again and again while vacuum cannot remove them."""

import psycopg
import pytest

from holdfast.engines.postgres.jobs import key_lines
from holdfast.engines.postgres.jobs.key_lines import MAX_KEEP_SECONDS, FreshScan
from tests.e2e.rig import until

from .appending import append, claimed_keys, new_event, subscribe

MAIL = ("mail",)


class Moment:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_quick_look_begins_at_the_first_mark():
    scan = FreshScan(Moment())
    scan.scanned(MAIL, 0, 7, 0.001)
    assert scan.after(MAIL) == 0


def test_a_slow_look_is_not_repeated_for_twenty_times_as_long(monkeypatch):
    monkeypatch.setattr(key_lines, "SLOW_SECONDS", 0.01)
    moment = Moment()
    scan = FreshScan(moment)
    scan.scanned(MAIL, 0, 7, 0.05)
    assert (scan.after(MAIL), scan.after(("other",))) == (7, 0)
    moment.seconds += 0.5
    scan.scanned(MAIL, 7, 9, 0.001)  # it goes on from there, and that is no new look
    assert scan.after(MAIL) == 9
    moment.seconds += 0.6
    assert scan.after(MAIL) == 0
    scan.scanned(MAIL, 0, 11, 100.0)
    moment.seconds += MAX_KEEP_SECONDS
    assert scan.after(MAIL) == 0


async def test_what_is_committed_late_is_found_by_the_next_look_from_the_beginning(
    opened, url, monkeypatch
):
    moment = Moment()
    monkeypatch.setattr(key_lines, "SLOW_SECONDS", -1.0)
    async with opened() as engine:
        engine._lines.scan = FreshScan(moment)
        await subscribe(engine)
        with psycopg.connect(url) as connection:
            append(connection, new_event("late"))
            await engine.append([new_event("a")])
            assert await claimed_keys(engine) == ["a"]
            assert await claimed_keys(engine) == []
        assert await claimed_keys(engine) == []
        await engine.append([new_event("b")])
        assert await claimed_keys(engine) == ["b"]
        moment.seconds += MAX_KEEP_SECONDS
        assert await claimed_keys(engine) == ["late"]


def entries_read(connection: psycopg.Connection) -> int:
    """Return how many entries of the index were read, once every engine's sessions have ended.

    A session adds what it counted to the statistics at its end, before it leaves the activity.
    """
    sessions = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'holdfast' AND datname = current_database()"
    )
    until(lambda: connection.execute(sessions).fetchone() == (0,), "the sessions have ended")
    read = (
        "SELECT coalesce(sum(idx_tup_read), 0)::int FROM pg_stat_user_indexes"
        " WHERE indexrelname = 'fresh_keys_place'"
    )
    [[found]] = connection.execute(read).fetchall()
    return int(found)


@pytest.mark.parametrize(("slow_seconds", "bounded"), [(-1.0, True), (1e9, False)])
async def test_dead_marks_are_passed_by_once(opened, url, monkeypatch, slow_seconds, bounded):
    """The second case is the control: every look begins at the first mark."""
    monkeypatch.setattr(key_lines, "SLOW_SECONDS", slow_seconds)
    with psycopg.connect(url) as old, psycopg.connect(url, autocommit=True) as connection:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1")
        async with opened() as engine:
            engine._lines.scan = FreshScan(Moment())
            await subscribe(engine)
            await engine.append([new_event(f"k{number}") for number in range(500)])
            await claimed_keys(engine)
        before = entries_read(connection)
        async with opened() as engine:
            engine._lines.scan = FreshScan(Moment())
            for _look in range(10):
                await engine.claim(queues=["nothing", "chronicle"], worker="w", tasks=["none"])
        after = entries_read(connection)
    assert (after - before < 1_000) is bounded
