"""A dump made into a directory that is whole, or does not have its name yet."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path

from holdfast.engines.contract import EngineOptions
from holdfast.engines.dump.digest import DumpDigest, digest_of
from holdfast.engines.dump.format import DumpRecord
from holdfast.engines.journal.readonly_engine import open_readonly
from holdfast.engines.journal.restore import restore
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.model.errors import InvalidInput, StorageError
from holdfast.model.job import MAX_TIME_US, MICROSECONDS

FOREVER_SECONDS = MAX_TIME_US / MICROSECONDS
"""For ``remember_seconds``: everything that is there goes along, however old."""
UNFINISHED = ".moving"
"""What is added to the name of a directory until everything is in it."""
_OURS = "MOVING"


async def fill(
    target: Path,
    batches: AsyncIterator[Sequence[DumpRecord]],
    gone: Callable[[int], None],
    read_back: Callable[[int], None],
) -> tuple[DumpDigest, DumpDigest]:
    """Write a dump into a new directory; return what was in it, and what was read back.

    Until everything is there the directory has another name. Raise ``StorageError`` if what was
    read back is something else.
    """
    unfinished = _make_room(target)
    contents = DumpDigest()
    await _restored(unfinished, _counted(batches, contents, gone))
    reader = await open_readonly(
        LocalDisk(unfinished), EngineOptions(remember_seconds=FOREVER_SECONDS)
    )
    try:
        found = await digest_of(reader.dump(), read_back)
    finally:
        await reader.close()
    if found != contents:
        raise StorageError(
            f"{unfinished} does not have in it what was moved: it is not used, and the source is "
            "as it was. Look at the disk, and move again"
        )
    _put_in_place(unfinished, target)
    return contents, found


def _make_room(target: Path) -> Path:
    """Return a new directory beside it; throw away what an interrupted move left there."""
    wanted = target.absolute()
    unfinished = wanted.with_name(wanted.name + UNFINISHED)
    if unfinished.exists():
        if not (unfinished / _OURS).is_file():
            raise InvalidInput("--to", f"{unfinished} is in the way: give it another name")
        disk = LocalDisk(unfinished)
        disk.lock()  # or somebody is moving there at this moment
        disk.unlock()
        shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    (unfinished / _OURS).touch()
    return unfinished


def _put_in_place(unfinished: Path, target: Path) -> None:
    wanted = target.absolute()
    if wanted.exists():
        wanted.rmdir()  # which goes only if it is empty
    unfinished.rename(wanted)
    (wanted / _OURS).unlink()
    _sync(wanted.parent)


async def _counted(
    batches: AsyncIterator[Sequence[DumpRecord]], contents: DumpDigest, gone: Callable[[int], None]
) -> AsyncIterator[Sequence[DumpRecord]]:
    async for batch in batches:
        for record in batch:
            contents.add(record)
        gone(contents.counts["job"])
        yield batch


async def _restored(directory: Path, batches: AsyncIterator[Sequence[DumpRecord]]) -> None:
    """Write a dump into a directory, on another thread; if this is cancelled, not to its end."""
    loop = asyncio.get_running_loop()
    asked: Future[Sequence[DumpRecord] | None] | None = None
    stopped = False

    async def following() -> Sequence[DumpRecord] | None:
        return await anext(batches, None)

    def passing() -> Iterator[Sequence[DumpRecord]]:
        nonlocal asked
        while not stopped:
            asked = asyncio.run_coroutine_threadsafe(following(), loop)
            with contextlib.suppress(CancelledError):
                batch = asked.result()
                if batch is None:
                    return
                yield batch
        raise StorageError(f"writing {directory} was given up")

    work = asyncio.ensure_future(asyncio.to_thread(restore, LocalDisk(directory), passing()))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        stopped = True
        if asked is not None:
            asked.cancel()
        await asyncio.gather(work, return_exceptions=True)
        raise


def _sync(directory: Path) -> None:
    """Have the names in a directory on stable storage, where the system can do that."""
    with contextlib.suppress(OSError):
        fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
