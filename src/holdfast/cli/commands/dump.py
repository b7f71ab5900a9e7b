"""``holdfast dump`` and ``holdfast load``: a store to one file, and back."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from holdfast.cli.group import CommandContext
from holdfast.cli.options import json_option
from holdfast.cli.output import document, echo, note, progress
from holdfast.model.errors import InvalidInput, StorageError
from holdfast.model.plural import count_of

_STANDARD = Path("-")
"""Stands for stdin or stdout."""
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
_NOUNS = {"audit": "audit entry"}

if TYPE_CHECKING:
    from holdfast.engines.dump.format import DumpManifest, DumpRecord
    from holdfast.operations.operations import Operations
    from holdfast.settings import Settings

    Batches = Iterable[Sequence[DumpRecord]]
    Kept = Callable[[Batches], Batches]
    """What of a dump is loaded."""


@click.command("dump")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path, allow_dash=True))
@click.option("--redact", is_flag=True, help="Leave out payloads, texts and the audit.")
@json_option
@click.pass_obj
def dump_store(context: CommandContext, file: Path, *, redact: bool, as_json: bool) -> None:
    """Write the whole store to FILE, or to stdout if it is -: for a backup or a move.

    Works with and without a running daemon, and is consistent. --redact leaves out payloads,
    results, error texts, notes, reasons and the audit, and replaces scopes, keys and unique keys by
    pseudonyms; the queues of a redacted dump are paused when it is loaded.
    """
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    settings = context.settings()
    store_access.require_persistent(settings)
    if file == _STANDARD:
        _dump_to_stdout(settings, redact=redact, as_json=as_json)
        return
    if file.exists():
        raise InvalidInput("file", f"{file} exists: choose another name")
    if not file.parent.is_dir():
        raise InvalidInput("file", f"{file.parent} is not a directory")
    # A name that nobody can guess, and made exclusively: never what another user has put there.
    unfinished = file.with_name(f"{file.name}.{secrets.token_hex(8)}.part")
    try:
        fd = os.open(unfinished, _NEW, 0o600)  # like the store's own files
    except OSError as error:
        raise StorageError(f"{unfinished} cannot be written: {error}") from error
    with os.fdopen(fd, "wb") as out, progress("dump", None, wanted=not as_json) as on_progress:
        try:
            manifest = store_access.write_store(
                settings,
                lambda operations: _write_file(operations, out, on_progress, redact=redact),
                reads_server=True,
            )
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
    if as_json:
        document({"file": str(file), "records": manifest.records, "sha256": manifest.sha256})
    else:
        echo(f"{file}: {_summary(manifest)}")


def _dump_to_stdout(settings: Settings, *, redact: bool, as_json: bool) -> None:
    from holdfast.cli import store_access  # noqa: PLC0415

    if sys.stdout.isatty():
        raise InvalidInput("file", "a dump is not text: redirect stdout to a file or a pipe")
    out = sys.stdout.buffer
    manifest = store_access.write_store(
        settings,
        lambda operations: _write(operations, out, lambda _count: None, redact=redact),
        reads_server=True,
    )
    out.flush()
    if as_json:
        told = {"file": "-", "records": manifest.records, "sha256": manifest.sha256}
        document(told, err=True)
    else:
        note(_summary(manifest))


async def _write(
    operations: Operations, out: BinaryIO, on_progress: Callable[[int], None], *, redact: bool
) -> DumpManifest:
    from holdfast.engines.dump.format import write_dump  # noqa: PLC0415
    from holdfast.engines.dump.redact import redacted  # noqa: PLC0415

    async def counted() -> AsyncIterator[Sequence[DumpRecord]]:
        count = 0
        batches = operations.engine.dump()
        async for batch in redacted(batches) if redact else batches:
            yield batch
            count += len(batch)
            on_progress(count)

    return await write_dump(out, counted())


async def _write_file(
    operations: Operations, out: BinaryIO, on_progress: Callable[[int], None], *, redact: bool
) -> DumpManifest:
    try:
        # write_store may try again, if an owner starts or stops meanwhile.
        out.seek(0)
        out.truncate()
        manifest = await _write(operations, out, on_progress, redact=redact)
        out.flush()
        os.fsync(out.fileno())
    except OSError as error:
        raise StorageError(f"the dump cannot be written: {error}") from error
    return manifest


@click.command("load")
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True)
)
@click.option("--keep-keys", is_flag=True, help="Load the keys for the HTTP API too.")
@json_option
@click.pass_obj
def load_store(context: CommandContext, file: Path, *, keep_keys: bool, as_json: bool) -> None:
    """Create a new store (--store) from a dump, or from stdin if FILE is -.

    An incomplete dump is refused.

    Keys for the HTTP API are left out, so that they do not open a copy of the store, unless
    --keep-keys is given.

    The store must be empty. If a load into a server is interrupted, run it again: it continues
    where it was.
    """
    from holdfast.cli import store_access  # noqa: PLC0415
    from holdfast.engines.dump.keys import without_keys  # noqa: PLC0415

    left_out: list[int] = []
    settings = context.settings()
    store_access.require_at_hand(settings)
    into = _into_server if settings.on_server else _into_directory
    with _opened(file) as source:
        kept = lambda batches: batches if keep_keys else without_keys(batches, left_out.append)
        jobs, unfinished = into(settings, source, kept, wanted=not as_json)
    keys = sum(left_out)
    if as_json:
        document(
            {
                "store": settings.store_shown,
                "jobs": jobs,
                "unfinished": unfinished,
                "keys_left_out": keys,
            }
        )
        return
    echo(
        f"{settings.store_shown}: {count_of(jobs)}, {unfinished:,} of them unfinished: "
        "they continue with `holdfast run`"
    )
    if keys:
        note(f"{count_of(keys, 'key')} left out: make new ones, or load with --keep-keys")


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    """Yield the dump, which is read twice; one from stdin is first copied to a temporary file."""
    if file != _STANDARD:
        with file.open("rb") as source:
            yield source
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        yield copy


def _into_directory(
    settings: Settings, source: BinaryIO, kept: Kept, *, wanted: bool
) -> tuple[int, int]:
    from holdfast.engines.dump.reading import read_dump  # noqa: PLC0415
    from holdfast.engines.journal.restore import restore  # noqa: PLC0415
    from holdfast.stores.opening import open_disk  # noqa: PLC0415

    del wanted  # loading a directory shows no progress
    return restore(open_disk(settings), kept(read_dump(source)))


def _into_server(
    settings: Settings, source: BinaryIO, kept: Kept, *, wanted: bool
) -> tuple[int, int]:
    import asyncio  # noqa: PLC0415

    from holdfast.engines.dump.reading import read_dump, verify_dump  # noqa: PLC0415
    from holdfast.stores.move import MoveProgress, load_into_server  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        begin = lambda steps: stack.enter_context(progress("load", steps, wanted=wanted))
        shown = MoveProgress(begin)
        shown.total(verify_dump(source).records.get("job", 0))
        return asyncio.run(load_into_server(settings, kept(read_dump(source)), shown))


def _summary(manifest: DumpManifest) -> str:
    counts = ", ".join(
        count_of(count, _NOUNS.get(kind, kind))
        for kind, count in sorted(manifest.records.items())
        if kind != "head"
    )
    return f"{counts or 'empty'}; sha256 {manifest.sha256}"
