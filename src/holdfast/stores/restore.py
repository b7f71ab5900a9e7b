"""Writes a dump into a new directory, which gets its name when it is complete."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path

from holdfast.engines.dump.digest import DumpDigest, digest_of
from holdfast.engines.dump.format import DumpRecord
from holdfast.engines.journal.restore import restore
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.model.errors import InvalidInput, StorageError
from holdfast.model.job import MAX_TIME_US, MICROSECONDS
from holdfast.settings import Settings

from .opening import open_readonly

FOREVER_SECONDS = MAX_TIME_US / MICROSECONDS
"""For ``remember_seconds``: everything is copied, however old."""
UNFINISHED = ".moving"
"""What is added to the name of a directory until everything is in it."""
_OURS = "MOVING"


async def fill(
    target: Path,
    batches: AsyncIterator[Sequence[DumpRecord]],
    copied: Callable[[int], None],
    read_back: Callable[[int], None],
) -> tuple[DumpDigest, DumpDigest]:
    """Write a dump into a new directory; return the digests of the dump and of what was read back.

    The directory has another name until it is complete. Raise ``StorageError`` if they differ.
    """
    unfinished = _make_room(target)
    contents = DumpDigest()
    await _restore_in_thread(unfinished, _counted(batches, contents, copied))
    reader = await open_readonly(Settings(store=str(unfinished), remember_seconds=FOREVER_SECONDS))
    try:
        found = await digest_of(reader.dump(), read_back)
    finally:
        await reader.close()
    if found != contents:
        raise StorageError(
            f"{unfinished} does not match the source: it is not used, and the source is "
            "as it was. Look at the disk, and move again"
        )
    _put_in_place(unfinished, target)
    return contents, found


def _make_room(target: Path) -> Path:
    """Return a new directory beside it; remove what an interrupted move left there."""
    wanted = target.absolute()
    unfinished = wanted.with_name(wanted.name + UNFINISHED)
    if unfinished.exists():
        if not (unfinished / _OURS).is_file():
            raise InvalidInput("--to", f"{unfinished} is in the way: give it another name")
        disk = LocalDisk(unfinished)
        disk.lock()  # raises if another move is writing there
        disk.unlock()
        shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    (unfinished / _OURS).touch(0o600)
    return unfinished


def _put_in_place(unfinished: Path, target: Path) -> None:
    wanted = target.absolute()
    if wanted.exists():
        wanted.rmdir()  # fails unless it is empty
    unfinished.rename(wanted)
    (wanted / _OURS).unlink()
    _sync(wanted.parent)


async def _counted(
    batches: AsyncIterator[Sequence[DumpRecord]],
    contents: DumpDigest,
    copied: Callable[[int], None],
) -> AsyncIterator[Sequence[DumpRecord]]:
    async for batch in batches:
        for record in batch:
            contents.add(record)
        copied(contents.counts["job"])
        yield batch


async def _restore_in_thread(directory: Path, batches: AsyncIterator[Sequence[DumpRecord]]) -> None:
    """Write a dump into a directory, on another thread; a cancellation stops that."""
    loop = asyncio.get_running_loop()
    pending: Future[Sequence[DumpRecord] | None] | None = None
    stopped = False

    async def next_batch() -> Sequence[DumpRecord] | None:
        return await anext(batches, None)

    def all_batches() -> Iterator[Sequence[DumpRecord]]:
        nonlocal pending
        while not stopped:
            pending = asyncio.run_coroutine_threadsafe(next_batch(), loop)
            with contextlib.suppress(CancelledError):
                batch = pending.result()
                if batch is None:
                    return
                yield batch
        raise StorageError(f"writing {directory} was given up")

    work = asyncio.ensure_future(asyncio.to_thread(restore, LocalDisk(directory), all_batches()))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        stopped = True
        if pending is not None:
            pending.cancel()
        await asyncio.gather(work, return_exceptions=True)
        raise


def _sync(directory: Path) -> None:
    """Sync a directory, where the system can."""
    with contextlib.suppress(OSError):
        fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
