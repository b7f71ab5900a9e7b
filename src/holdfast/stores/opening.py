"""Opens the engine of a store from its settings: the only place that knows every engine.

An engine is imported when it is opened, so that a command loads only what it needs.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.engines.contract import Engine, EngineOptions
from holdfast.engines.ownership import directory_problem
from holdfast.engines.read_models.contract import DIRECTORY as READ_MODELS
from holdfast.model.errors import DirectoryInUse, InvalidInput, StorageError
from holdfast.model.visible_text import is_visible_ascii
from holdfast.settings import MEMORY_STORE, Settings

from .tombstone import refuse_moved

if TYPE_CHECKING:
    from holdfast.engines.client.engine import ClientEngine
    from holdfast.engines.client.http_endpoint import HttpEndpoint
    from holdfast.engines.journal.engine import JournalEngine
    from holdfast.engines.journal.readonly_engine import ReadonlyJournalEngine
    from holdfast.engines.journal.wal.disk import LocalDisk
    from holdfast.engines.postgres.engine import PostgresEngine
    from holdfast.engines.postgres.options import PostgresOptions

LOOKING_CONNECTIONS = 4
"""The most connections for the reads of the API."""
LOCK_PATIENCE_SECONDS = 5.0
CLIENT_PATIENCE_SECONDS = 5.0
KEY_VARIABLE = "HOLDFAST_API_KEY"
_RETRY_SECONDS = 0.05


async def open_engine(settings: Settings, *, own: bool, key: str | None = None) -> Engine:
    """Open the engine that the settings name: as the owner of a directory, or as a client.

    ``key`` is the application's, for a store at ``https://…``.
    """
    if settings.store == MEMORY_STORE:
        from holdfast.engines.memory.engine import MemoryEngine

        return MemoryEngine(options=_engine_options(settings))
    if settings.on_server:
        return await connect_postgres(settings)
    if settings.remote:
        return open_remote(settings, key)
    if own:
        return await own_journal(settings, 0.0)
    return await open_client(settings)


async def own_journal(
    settings: Settings, patience_seconds: float = LOCK_PATIENCE_SECONDS
) -> JournalEngine:
    """Become the owner of the directory; wait this long for another owner to leave."""
    from holdfast.engines.journal.engine import JournalEngine
    from holdfast.engines.journal.options import DamagedHistory, JournalOptions
    from holdfast.engines.journal.wal.group_commit import SyncMode

    disk = open_disk(settings)
    refuse_moved(settings)
    options = JournalOptions(
        remember_seconds=settings.remember_seconds,
        max_history_bytes=settings.max_history_bytes,
        keep_payload=settings.keep_payload,
        max_processing_seconds=settings.max_processing_seconds,
        outage_max_seconds=settings.outage_max_seconds,
        sync=SyncMode(settings.sync),
        history=DamagedHistory(settings.history),
        keep_log_bytes=settings.keep_log_bytes or 0,
    )
    loop = asyncio.get_running_loop()
    give_up = loop.time() + patience_seconds
    journal: JournalEngine | None = None
    while journal is None:
        try:
            journal = await JournalEngine.open(disk, options=options)
        except DirectoryInUse:
            if loop.time() >= give_up:
                raise
            await asyncio.sleep(_RETRY_SECONDS)
    try:
        refuse_moved(settings)  # again: the owner before may have moved everything
    except StorageError:
        await journal.close()
        raise
    return journal


async def open_readonly(settings: Settings) -> ReadonlyJournalEngine:
    """Read the directory without owning it."""
    from holdfast.engines.journal.readonly_engine import open_readonly

    disk = open_disk(settings)
    refuse_moved(settings)
    try:
        return await open_readonly(disk, _engine_options(settings))
    except OSError as error:
        raise StorageError(f"{settings.store_shown} cannot be read: {error}") from error


async def open_client(settings: Settings) -> ClientEngine:
    """Return a client of the owner of the directory."""
    from holdfast.engines.client.engine import ClientEngine
    from holdfast.engines.socket_path import socket_path

    if settings.directory is None:
        raise InvalidInput("store", f"{settings.store_shown!r} cannot be opened")
    claim_store(settings)
    refuse_moved(settings)
    return ClientEngine(
        socket_path(settings.directory),
        patience_seconds=CLIENT_PATIENCE_SECONDS,
        read_models=Path(settings.directory) / READ_MODELS,
    )


def open_remote(settings: Settings, key: str | None = None) -> ClientEngine:
    """Return a client of the API of another machine; ``key`` wins over what the settings name."""
    from holdfast.engines.client.engine import ClientEngine

    endpoint = remote_endpoint(settings, key)
    return ClientEngine(endpoint, patience_seconds=CLIENT_PATIENCE_SECONDS)


def remote_endpoint(settings: Settings, key: str | None = None) -> HttpEndpoint:
    """Return where the API is, with the key for it; raise ``InvalidInput`` if there is none."""
    from holdfast.engines.client.http_endpoint import HttpEndpoint

    text = key or os.environ.get(KEY_VARIABLE, "")
    if not text and settings.api_key_file is not None:
        from holdfast.http.credential_files import TokenFile

        file = TokenFile(settings.api_key_file, "api_key_file")
        return HttpEndpoint(
            settings.store, lambda: file.token().decode("ascii"), settings.api_ca_file
        )
    if not text:
        problem = f"{settings.store_shown} needs a key: set {KEY_VARIABLE}, or api_key_file"
        raise InvalidInput("api_key_file", problem)
    if not is_visible_ascii(text):
        raise InvalidInput("key", "it has blanks or other characters that no key has")
    return HttpEndpoint(settings.store, lambda: text, settings.api_ca_file)


def claim_store(settings: Settings) -> None:
    """Raise ``StoreNotOurs`` if the directory of a store is another's; mend it if it is ours.

    Who only connects to the owner needs no more of the disk.
    """
    try:
        wrong = settings.directory and directory_problem(Path(settings.directory))
    except OSError as error:
        raise StorageError(f"{settings.store_shown} cannot be looked at: {error}") from error
    if wrong:
        open_disk(settings)


def open_disk(settings: Settings) -> LocalDisk:
    """Return the disk of a store that is a directory; raise ``StoreNotOurs`` if it is another's."""
    from holdfast.engines.journal.wal.disk import LocalDisk

    if settings.directory is None:
        raise InvalidInput(
            "store", f"{settings.store_shown!r} is not a directory that can be owned"
        )
    disk = LocalDisk(settings.directory, snapshots=settings.snapshot_directory)
    try:
        disk.claim()
    except OSError as error:
        raise StorageError(f"{settings.store_shown} cannot be looked at: {error}") from error
    return disk


async def connect_postgres(settings: Settings, *, reading: bool = False) -> PostgresEngine:
    """Connect to the server that keeps the store; ``reading``: without rights to change it."""
    options = postgres_options(settings)
    from holdfast.engines.postgres.engine import PostgresEngine

    return await PostgresEngine.open(settings.store, options=options, reading=reading)


async def connect_for_looking(settings: Settings) -> PostgresEngine:
    """Connect to the server with few connections and short statements, for who only looks."""
    options = postgres_options(settings)
    from holdfast.engines.postgres.engine import PostgresEngine

    seconds = min(settings.api_statement_timeout_seconds, settings.statement_timeout_seconds)
    few = min(LOOKING_CONNECTIONS, settings.max_connections)
    short = replace(options, max_connections=few, statement_timeout_seconds=seconds, listen=False)
    return await PostgresEngine.open(settings.store, options=short, reading=True)


def postgres_options(settings: Settings) -> PostgresOptions:
    """Return the options of the server; raise ``InvalidInput`` if psycopg is not installed."""
    try:
        import psycopg  # noqa: F401 - an extra

        from holdfast.engines.postgres.options import PostgresOptions
    except ImportError as error:
        problem = (
            f"{settings.store_shown} needs psycopg ({error}): pip install 'holdfast[postgres]'"
        )
        raise InvalidInput("store", problem) from None
    return PostgresOptions(
        remember_seconds=settings.remember_seconds,
        max_history_bytes=settings.max_history_bytes,
        keep_payload=settings.keep_payload,
        max_processing_seconds=settings.max_processing_seconds,
        outage_max_seconds=settings.outage_max_seconds,
        schema=settings.schema,
        projection_schema=settings.projection_schema,
        max_connections=settings.max_connections,
        statement_timeout_seconds=settings.statement_timeout_seconds,
        poll_interval_seconds=settings.poll_interval_seconds,
        listen=settings.wake == "notify",
        listen_url=settings.listen_url,
    )


def _engine_options(settings: Settings) -> EngineOptions:
    return EngineOptions(
        remember_seconds=settings.remember_seconds,
        max_history_bytes=settings.max_history_bytes,
        keep_payload=settings.keep_payload,
        max_processing_seconds=settings.max_processing_seconds,
        outage_max_seconds=settings.outage_max_seconds,
    )
