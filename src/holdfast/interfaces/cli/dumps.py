"""``holdfast dump`` and ``holdfast load``: a store as one file, and back."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from holdfast.engines.base import Engine
from holdfast.engines.client import ClientEngine
from holdfast.engines.dump import Manifest, read_dump, write_dump
from holdfast.engines.journal.disk import LocalDisk
from holdfast.engines.journal.restoring import restore
from holdfast.engines.socket_path import socket_path
from holdfast.model.errors import DirectoryInUse, InvalidInput, NoOwner
from holdfast.settings import Settings

from .owner import with_store


def dump(settings: Settings, file: Path) -> None:
    """Write everything that the store keeps into a file, whoever owns the store."""
    if settings.directory is None:
        raise InvalidInput("store", f"{settings.store!r} ends with the process that has it")
    if file.exists():
        raise InvalidInput("file", f"{file} exists: name another one")
    unfinished = file.with_name(file.name + ".part")
    try:
        manifest = _dump(settings, unfinished)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    click.echo(f"{file}: {_said(manifest)}")


def _dump(settings: Settings, file: Path) -> Manifest:
    async def write(engine: Engine) -> Manifest:
        with file.open("wb") as out:
            manifest = await write_dump(out, engine.dump())
            out.flush()
            os.fsync(out.fileno())
        return manifest

    async def ask_owner(directory: str) -> Manifest:
        client = ClientEngine(socket_path(directory), patience_seconds=0.2)
        try:
            return await write(client)
        finally:
            await client.close()

    try:
        return asyncio.run(ask_owner(str(settings.directory)))
    except NoOwner:
        try:
            return with_store(settings, write)
        except DirectoryInUse:
            # Somebody has just become the owner.
            return asyncio.run(ask_owner(str(settings.directory)))


def load(settings: Settings, file: Path) -> None:
    """Make a store that does not exist yet hold what a dump has."""
    if settings.directory is None:
        raise InvalidInput("store", f"{settings.store!r} ends with the process that has it")
    disk = LocalDisk(settings.directory, snapshots=settings.snapshot_directory)
    with file.open("rb") as source:
        loaded = restore(disk, read_dump(source))
    click.echo(
        f"{settings.store}: {loaded.jobs:,} jobs, {loaded.unfinished:,} of them unfinished: "
        "they go on when it is run"
    )


def _said(manifest: Manifest) -> str:
    counts = ", ".join(
        f"{count:,} {kind}{'' if count == 1 else 's'}"
        for kind, count in sorted(manifest.records.items())
        if kind != "head"
    )
    return f"{counts or 'nothing in it'}; sha256 {manifest.sha256}"
