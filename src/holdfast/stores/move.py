"""Everything from one store to another one that is empty: carried over, read back and compared."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import astuple

from holdfast.engines.contract import Engine
from holdfast.engines.dump.digest import DumpDigest
from holdfast.engines.dump.format import DumpedJob, DumpRecord
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.wal.disk import LOG, LocalDisk
from holdfast.model.errors import InvalidInput

from .restore import FOREVER_SECONDS, fill

if TYPE_CHECKING:
    from holdfast.engines.postgres.options import PostgresOptions
    from holdfast.settings import Settings


class StoreLocation(NamedTuple):
    """Where a store is: a directory, with its snapshots perhaps elsewhere, or a server."""

    shown: str
    directory: str | None
    snapshots: str | None
    url: str
    schema: str


def place_of(settings: Settings) -> StoreLocation:
    """Return where the store of these settings is."""
    if settings.directory is None and not settings.on_server:
        raise InvalidInput("store", f"{settings.store} ends with the process that has it")
    return StoreLocation(
        settings.store_shown,
        settings.directory,
        settings.snapshot_directory,
        settings.store,
        settings.schema,
    )


class MoveResult(NamedTuple):
    """What there was, what was found when it was read back, and what was there before."""

    contents: DumpDigest
    read_back: DumpDigest
    known_records: int = 0


class MoveProgress:
    """One measure for the way there and back: every job goes, and is read back."""

    def __init__(self, begin: Callable[[int], Callable[[int], None]]) -> None:
        """Take what is told how many steps there are, and returns who is told of each."""
        self._begin = begin
        self._show: Callable[[int], None] = lambda _steps: None
        self._gone = 0

    def total(self, jobs: int) -> None:
        """Begin: there are so many jobs."""
        self._show = self._begin(2 * jobs)

    def gone(self, jobs: int) -> None:
        """So many have gone."""
        self._gone = jobs
        self._show(jobs)

    def read_back(self, jobs: int) -> None:
        """So many were read back."""
        self._show(self._gone + jobs)


def check(source: StoreLocation, target: StoreLocation) -> None:
    """Raise ``InvalidInput`` if there is nothing to move, or no room for it, as far as one sees."""
    if source.directory is not None and not (Path(source.directory) / LOG).is_dir():
        raise InvalidInput("--from", f"there is no store in {source.shown}")
    if target.directory is not None:
        place = Path(target.directory)
        if source.directory is not None and place.absolute() == Path(source.directory).absolute():
            raise InvalidInput("--to", f"{target.shown} is where it is already")
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise InvalidInput("--to", f"{target.shown} is not empty: name another directory")
        if not place.absolute().parent.is_dir():
            raise InvalidInput("--to", f"{place.absolute().parent} is no directory")
    elif (source.url, source.schema) == (target.url, target.schema):
        raise InvalidInput("--to", f"{target.shown} is where it is already")


async def move(
    source: StoreLocation, target: StoreLocation, told: MoveProgress, *, anew: bool = False
) -> MoveResult:
    """Carry everything over. Interrupted, it is done again: a server goes on where it was.

    Nobody can use the target before everything is there. The source is left as it is; while it is
    a directory, nobody else owns it meanwhile. ``anew`` throws away what an interrupted move left.
    """
    check(source, target)
    async with _opened(source) as engine:
        told.total(sum(sum(astuple(one)) for one in (await engine.counts()).values()))
        if target.directory is not None:
            contents, read_back = await fill(
                Path(target.directory), engine.dump(), told.gone, told.read_back
            )
            return MoveResult(contents, read_back)
        return await _into_server(engine.dump(), target, told, anew=anew)


@contextlib.asynccontextmanager
async def _opened(place: StoreLocation) -> AsyncIterator[Engine]:
    engine: Engine
    if place.directory is None:
        from holdfast.engines.postgres.engine import PostgresEngine  # noqa: PLC0415 - an extra

        engine = await PostgresEngine.open(place.url, options=server_options(place))
    else:
        disk = LocalDisk(place.directory, snapshots=place.snapshots)
        options = JournalOptions(remember_seconds=FOREVER_SECONDS)
        engine = await JournalEngine.open(disk, options=options)
    try:
        yield engine
    finally:
        await engine.close()


def server_options(place: StoreLocation) -> PostgresOptions:
    """Return how to use a server; raise ``InvalidInput`` if this installation cannot."""
    try:
        from holdfast.engines.postgres.options import PostgresOptions  # noqa: PLC0415 - an extra
    except ImportError as error:
        problem = f"{place.shown} needs psycopg ({error}): pip install 'holdfast[postgres]'"
        raise InvalidInput("store", problem) from None
    return PostgresOptions(remember_seconds=FOREVER_SECONDS, schema=place.schema)


async def load_into_server(
    target: StoreLocation, batches: Iterable[Sequence[DumpRecord]], told: MoveProgress
) -> tuple[int, int]:
    """Load a dump into a server; return how many jobs there are now, and how many unfinished."""
    unfinished = 0

    async def records() -> AsyncIterator[Sequence[DumpRecord]]:
        nonlocal unfinished
        for batch in batches:
            jobs = [one.job for one in batch if isinstance(one, DumpedJob)]
            unfinished += sum(not job.state.finished for job in jobs)
            yield batch

    loaded = await _into_server(records(), target, told, anew=False)
    return loaded.read_back.counts["job"], unfinished


async def _into_server(
    batches: AsyncIterator[Sequence[DumpRecord]],
    target: StoreLocation,
    told: MoveProgress,
    *,
    anew: bool,
) -> MoveResult:
    options = server_options(target)
    from holdfast.engines.postgres.restore.restore import ProgressHooks, load  # noqa: PLC0415 - an extra

    hooks = ProgressHooks(told.gone, told.read_back)
    loaded = await load(target.url, batches, options=options, hooks=hooks, anew=anew)
    return MoveResult(*loaded)
