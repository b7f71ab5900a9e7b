"""Copies everything in a store to an empty one, reads it back and compares."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import astuple

from holdfast.engines.contract import Engine
from holdfast.engines.dump.digest import DumpDigest
from holdfast.engines.dump.format import DumpedJob, DumpRecord
from holdfast.engines.journal.wal.disk import LOG
from holdfast.model.errors import InvalidInput
from holdfast.model.job import MAX_TIME_US
from holdfast.settings import Settings

from .opening import open_engine, postgres_options
from .restore import FOREVER_SECONDS, fill
from .tombstone import leave_tombstone


class MoveResult(NamedTuple):
    """What was copied, what was read back, and how many records were there before."""

    contents: DumpDigest
    read_back: DumpDigest
    known_records: int = 0


class MoveProgress:
    """Counts two steps for each job: it is copied, and it is read back."""

    def __init__(self, begin: Callable[[int], Callable[[int], None]]) -> None:
        """``begin`` takes the number of steps and returns what shows the steps done."""
        self._begin = begin
        self._show: Callable[[int], None] = lambda _steps: None
        self._copied = 0

    def total(self, jobs: int) -> None:
        """Begin with this number of jobs."""
        self._show = self._begin(2 * jobs)

    def copied(self, jobs: int) -> None:
        """This many were copied."""
        self._copied = jobs
        self._show(jobs)

    def read_back(self, jobs: int) -> None:
        """This many were read back."""
        self._show(self._copied + jobs)


def check(source: Settings, target: Settings) -> None:
    """Raise ``InvalidInput`` if the source has no store, or the target is not empty."""
    if source.directory is not None and not (Path(source.directory) / LOG).is_dir():
        raise InvalidInput("--from", f"there is no store in {source.store_shown}")
    if target.directory is not None:
        place = Path(target.directory)
        if source.directory is not None and place.absolute() == Path(source.directory).absolute():
            raise InvalidInput("--to", f"{target.store_shown} is the source itself")
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise InvalidInput("--to", f"{target.store_shown} is not empty: name another directory")
        if not place.absolute().parent.is_dir():
            raise InvalidInput("--to", f"{place.absolute().parent} is not a directory")
    elif (source.store, source.schema) == (target.store, target.schema):
        raise InvalidInput("--to", f"{target.store_shown} is the source itself")


async def move(
    source: Settings, target: Settings, progress: MoveProgress, *, anew: bool = False
) -> MoveResult:
    """Copy everything. Run again after an interruption, it resumes on a server.

    The target cannot be used before everything is there. A source that is a directory is owned
    meanwhile, and marked as moved afterwards. ``anew`` discards what an interrupted move left.
    """
    check(source, target)
    async with _opened(source) as engine:
        progress.total(sum(sum(astuple(one)) for one in (await engine.counts()).values()))
        if target.directory is not None:
            contents, read_back = await fill(
                Path(target.directory), engine.dump(), progress.copied, progress.read_back
            )
            moved = MoveResult(contents, read_back)
        else:
            moved = await _into_server(engine.dump(), target, progress, anew=anew)
        leave_tombstone(source, target)  # while the directory is still owned
        return moved


@contextlib.asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Engine]:
    engine = await open_engine(_with_everything(settings), own=True)
    try:
        yield engine
    finally:
        await engine.close()


def _with_everything(settings: Settings) -> Settings:
    """Return settings for the same store under which everything is copied, however old."""
    return Settings(
        store=settings.store,
        snapshot_path=settings.snapshot_path,
        schema=settings.schema,
        remember_seconds=FOREVER_SECONDS,
        max_history_bytes=MAX_TIME_US,
    )


async def load_into_server(
    target: Settings, batches: Iterable[Sequence[DumpRecord]], progress: MoveProgress
) -> tuple[int, int]:
    """Load a dump into a server; return how many jobs there are now, and how many unfinished."""
    unfinished = 0

    async def records() -> AsyncIterator[Sequence[DumpRecord]]:
        nonlocal unfinished
        for batch in batches:
            jobs = [one.job for one in batch if isinstance(one, DumpedJob)]
            unfinished += sum(not job.state.finished for job in jobs)
            yield batch

    loaded = await _into_server(records(), target, progress, anew=False)
    return loaded.read_back.counts["job"], unfinished


async def _into_server(
    batches: AsyncIterator[Sequence[DumpRecord]],
    target: Settings,
    progress: MoveProgress,
    *,
    anew: bool,
) -> MoveResult:
    options = postgres_options(_with_everything(target))
    from holdfast.engines.postgres.restore.restore import ProgressHooks, load  # noqa: PLC0415 - an extra

    hooks = ProgressHooks(progress.copied, progress.read_back)
    loaded = await load(target.store, batches, options=options, hooks=hooks, anew=anew)
    return MoveResult(*loaded)
