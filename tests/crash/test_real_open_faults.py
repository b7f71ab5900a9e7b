"""A process that may open no more files, for real: what is not opened by the simulated disk.

Samples, read models, the compacting process, and child processes of tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.history import database as history_database
from holdfast.engines.journal.history.database import translated
from holdfast.engines.journal.samples.store import SqliteSamples
from holdfast.engines.read_models.sqlite_file import SqliteFile
from holdfast.model.errors import HoldfastError, StorageError, StorageFull
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import OutcomeKind, completed, retry
from holdfast.model.read_model import ColumnType, ReadModel
from holdfast.model.retry import RetryPolicy
from holdfast.model.samples import QueueDepth, QueueFlow, QueueSample, SampleQuery, Tier
from holdfast.worker import children as children_module
from holdfast.worker.attempt import Attempt
from holdfast.worker.builtin_tasks import SIMULATE
from holdfast.worker.child_process import ChildConfig
from holdfast.worker.children import Children
from tests.worker.test_children import app_file, attempt_of, registry

__all__ = ["app_file", "registry"]

FILES = resource.RLIMIT_NOFILE
TABLE = ReadModel(name="t", columns={"id": ColumnType.TEXT}, key=("id",))
EVERYTHING = SampleQuery(("default",), Tier.SAMPLE, 0, 10, 1)
SAMPLE = QueueSample(QueueDepth(), QueueFlow(), 1.0)
FAULTS = [errno.EMFILE, errno.ENFILE, errno.EACCES]


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open no file, pipe or socket more than it has."""
    old = resource.getrlimit(FILES)
    resource.setrlimit(FILES, (0, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(FILES, old)


def failing_with(number: int) -> Callable[..., Awaitable[object]]:
    async def failing(*_args: object, **_more: object) -> object:
        raise OSError(number, os.strerror(number))

    return failing


# --- samples ------------------------------------------------------------------------------------


async def sampled(samples: SqliteSamples) -> int:
    return sum(len(points) for points in (await samples.read(EVERYTHING)).values())


async def samples_are_skipped_and_go_on(path: Path) -> None:
    samples = SqliteSamples(str(path))
    with no_more_files():
        await samples.add(1, {"default": SAMPLE})
        assert await sampled(samples) == 0
    await samples.add(2, {"default": SAMPLE})
    assert await sampled(samples) == 1, "no restart is needed"
    await samples.close()


async def test_without_files_a_sample_is_left_out_and_the_next_is_taken(tmp_path):
    await samples_are_skipped_and_go_on(tmp_path / "samples.sqlite")


async def test_control_samples_that_raise_stop_the_one_who_takes_them(tmp_path, monkeypatch):
    def attempt(self, work, otherwise):
        return work(self._connected())

    monkeypatch.setattr(SqliteSamples, "_attempt", attempt)
    with pytest.raises((sqlite3.Error, OSError)):
        await samples_are_skipped_and_go_on(tmp_path / "samples.sqlite")


# --- read models --------------------------------------------------------------------------------


def test_without_files_a_read_model_says_so_and_is_whole_afterwards(tmp_path):
    path = str(tmp_path / "t_1.sqlite")
    with no_more_files(), pytest.raises(StorageError, match="cannot be opened"):
        SqliteFile(path, TABLE)
    first = SqliteFile(path, TABLE)
    first.create()
    with no_more_files(), pytest.raises(StorageError, match="cannot be opened"):
        SqliteFile(path, TABLE, writes=False)
    SqliteFile(path, TABLE, writes=False).close()
    first.close()


# --- the compacting process ---------------------------------------------------------------------


async def compacts_later(root: Path) -> None:
    """Fail to compact, work on, compact, and find all of it in the next life."""
    engine = await JournalEngine.open(root)
    await engine.enqueue([NewJob(task="t", id=f"j{n}") for n in range(5)])
    with no_more_files():
        with pytest.raises(StorageError, match="no snapshot could be written"):
            await engine.compact()
        await engine.enqueue([NewJob(task="t", id="meanwhile")])
        [job] = (await engine.claim(queues=["default"], worker="w", limit=1)).jobs
        assert await engine.settle([completed(job)]) == [None]
    assert await engine.compact() is not None
    await engine.close()
    again = await JournalEngine.open(root)
    found = await again.get([*(f"j{n}" for n in range(5)), "meanwhile"])
    states = [one.state for one in found if one is not None]
    assert states == [State.COMPLETED] + [State.PENDING] * 5
    await again.close()


async def test_without_files_nothing_is_compacted_and_work_goes_on(tmp_path):
    await compacts_later(tmp_path / "data")


@pytest.mark.parametrize("number", FAULTS)
async def test_a_compacting_process_that_cannot_start_is_tried_again(tmp_path, monkeypatch, number):
    engine = await JournalEngine.open(tmp_path / "data")
    await engine.enqueue([NewJob(task="t", id="a")])
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "create_subprocess_exec", failing_with(number))
        with pytest.raises(StorageError, match="no snapshot could be written"):
            await engine.compact()
    assert await engine.compact() is not None
    assert [job.id for job in (await engine.find()).jobs] == ["a"]
    await engine.close()


# --- children of tasks --------------------------------------------------------------------------


def config(registry) -> ChildConfig:
    return ChildConfig(retry=RetryPolicy(), reference=registry.reference, default_task=SIMULATE)


async def runs_later(registry) -> None:
    """A job whose process cannot start is not charged an attempt, and runs the next time."""
    children = Children(config(registry))
    one: Attempt = attempt_of(registry, "echo", b'{"value":1}')
    try:
        with no_more_files():
            outcome = await children.run(one, alone=False)
        assert (outcome.kind, outcome.failure) == (OutcomeKind.SNOOZE, None)
        assert outcome.delay_seconds == children_module.SNOOZE_SECONDS
        assert (await children.run(one, alone=False)).kind is OutcomeKind.COMPLETED
        with no_more_files():
            assert (await children.run(one, alone=False)).kind is OutcomeKind.COMPLETED, "kept"
    finally:
        await children.close()


async def test_a_job_whose_process_cannot_start_is_tried_later_and_not_charged(registry):
    await runs_later(registry)


@pytest.mark.parametrize("number", FAULTS)
async def test_so_it_is_whatever_the_system_lacks(registry, monkeypatch, number):
    monkeypatch.setattr(asyncio, "create_subprocess_exec", failing_with(number))
    children = Children(config(registry))
    outcome = await children.run(attempt_of(registry, "echo", b'{"value":1}'), alone=True)
    assert outcome.kind is OutcomeKind.SNOOZE
    await children.close()


async def test_control_as_an_error_of_the_task_it_is_charged(registry, monkeypatch):
    failure = Failure.of("unexpected", "no process")
    monkeypatch.setattr(children_module, "snooze", lambda job, delay: retry(job, failure, delay))
    with pytest.raises(AssertionError):
        await runs_later(registry)


# --- what SQLite says ---------------------------------------------------------------------------


def cannot_open(path: Path) -> Exception:
    with no_more_files(), pytest.raises(sqlite3.OperationalError) as refused:
        sqlite3.connect(path).execute("CREATE TABLE t (n)")
    return translated(refused.value, "cold.sqlite")


def test_a_file_that_sqlite_cannot_open_is_as_a_full_disk(tmp_path):
    error = cannot_open(tmp_path / "x.sqlite")
    assert isinstance(error, StorageFull)
    assert "limit of open files" in str(error)


def test_control_taken_for_a_broken_disk_it_is_another_error(tmp_path, monkeypatch):
    full = frozenset({sqlite3.SQLITE_FULL})
    monkeypatch.setattr(history_database, "_CANNOT_GROW", full)
    error = cannot_open(tmp_path / "x.sqlite")
    assert isinstance(error, HoldfastError)
    assert not isinstance(error, StorageFull)
