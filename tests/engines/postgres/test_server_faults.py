"""The server crashes, ends connections, has none left, or makes all clients wait: work goes on."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable

import psycopg
import pytest

from tests.e2e.rig import until

from .conftest import Durable
from .load import Load, ServerRig, all_problems

TIMES = 10 if "HOLDFAST_TEST_KILLS" in os.environ else 2
JOBS = 90
LEASE_SECONDS = 6.0
"""Longer than any of these faults, so that little is interrupted; claims without an answer wait."""
STATEMENT_TIMEOUT_SECONDS = "0.5"
OURS = "application_name = 'holdfast' AND datname = current_database()"


def crash(durable: Durable, load: Load, rng: random.Random) -> None:
    """Stop the server as a crash does, at some moment, and start it again."""
    time.sleep(rng.uniform(0.0, 0.2))
    durable.server.stop(signal.SIGQUIT)
    durable.server.start()


def storm(durable: Durable, load: Load, rng: random.Random) -> None:
    """End every connection every few milliseconds, for a second."""
    ended = 0
    with psycopg.connect(load.rig.url, autocommit=True) as admin:
        give_up = time.monotonic() + 1.0
        while time.monotonic() < give_up:
            ended += len(
                admin.execute(
                    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}"  # noqa: S608
                ).fetchall()
            )
            time.sleep(rng.uniform(0.001, 0.02))
    assert ended >= 10


def exhaustion(durable: Durable, load: Load, rng: random.Random) -> None:
    """Take every connection that the server has, and keep them until a producer complains."""
    before = len(load.complaints())
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(psycopg.connect(load.rig.url, autocommit=True))
        taken = 0
        while True:
            admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}")  # noqa: S608
            try:
                stack.enter_context(psycopg.connect(load.rig.url))
                taken += 1
            except psycopg.OperationalError:
                if _count(admin, OURS) == 0:
                    break
        assert taken >= 10
        load.more(JOBS)
        until(lambda: len(load.complaints()) > before, "a producer gets an error")


def locked_table(durable: Durable, load: Load, rng: random.Random) -> None:
    """Lock the jobs until statements have been cancelled."""
    _locked(load, "LOCK TABLE holdfast.jobs IN ACCESS EXCLUSIVE MODE")


def locked_rows(durable: Durable, load: Load, rng: random.Random) -> None:
    """Hold the rows of jobs that others have in flight."""
    _locked(load, "SELECT state FROM holdfast.jobs WHERE state = 2 OR key IS NOT NULL FOR UPDATE")


def _locked(load: Load, statement: str) -> None:
    with psycopg.connect(load.rig.url) as admin:
        until(lambda: _is_in_the_way(admin, statement), "there is something to lock")
        load.more(JOBS)
        before = len(load.complaints())
        until(
            lambda: (
                any(_gave_up(one.errors) for one in load.daemons) or len(load.complaints()) > before
            ),
            "a statement is given up",
        )


def _gave_up(errors: str) -> bool:
    """Whether a daemon reports a statement that took too long, or waited too long for a lock."""
    return "statement_timeout" in errors or "holds a lock" in errors


def _is_in_the_way(admin: psycopg.Connection, statement: str) -> bool:
    """Lock; keep the lock if others wait for it: workers that hold a job in flight settle it."""
    cursor = admin.execute(statement.encode())
    if cursor.description is None or (2,) in cursor.fetchall():
        return True
    admin.rollback()
    return False


def _count(admin: psycopg.Connection, condition: str) -> int:
    found = admin.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {condition}").fetchone()  # noqa: S608
    assert found is not None
    return int(found[0])


@pytest.mark.timeout(120 + 30 * TIMES)
@pytest.mark.parametrize("fault", [crash, storm, exhaustion, locked_table, locked_rows])
def test_nothing_is_lost_or_recorded_twice_and_all_recover_by_themselves(
    durable, tmp_path, byte_code, fault: Callable[[Durable, Load, random.Random], None]
):
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    rng = random.Random(seed)
    with durable.databases.fresh() as url:
        rig = ServerRig(tmp_path, url, byte_code)
        if fault in (locked_table, locked_rows):
            rig.env["HOLDFAST_STATEMENT_TIMEOUT_SECONDS"] = STATEMENT_TIMEOUT_SECONDS
        load = Load(rig, LEASE_SECONDS)
        try:
            for daemon in load.daemons:
                daemon.ready()  # one that finds no server when it starts reports that and exits
            for _ in range(1 if fault is exhaustion else TIMES):  # it takes its time
                load.more(JOBS)
                load.moves(10)
                fault(durable, load, rng)
                load.more(JOBS)
                load.moves(JOBS // 2)
            story = load.finish(2 * TIMES)
            found = all_problems(rig, story)
        finally:
            load.close()
            rig.close()
    figures = f"{len(story.states)} jobs, {story.begun.total()} runs; {story.complaints[:5]}"
    print(figures)  # noqa: T201 - the figures are the point
    assert found == [], figures
    assert [said for said in story.complaints if "Unavailable: " not in said] == []
