"""Reaching the store from a command: through its owner if there is one, directly if not.

With an owner, every verb goes over its socket. Without one, whoever looks reads the directory and
changes nothing, and whoever changes something owns it for a moment. A server has no owner.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from holdfast.daemon.control_socket import control_path
from holdfast.engines.socket_path import socket_path
from holdfast.model.errors import DirectoryInUse, InvalidInput, StorageError, Unavailable
from holdfast.operations.operations import Operations
from holdfast.settings import MEMORY_STORE, Settings

T = TypeVar("T")
A = TypeVar("A")
Work = Callable[[Operations], Awaitable[T]]

PATIENCE_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.05
_ANSWER_SECONDS = 60.0


def look(settings: Settings, work: Work[T]) -> T:
    """Do this work, which only looks, whoever owns the store."""
    check_kept(settings)
    if settings.on_server:
        return asyncio.run(_on_server(settings, work))
    if owned(settings):
        return asyncio.run(_over_the_socket(settings, work))
    try:
        return asyncio.run(_reading(settings, work))
    except StorageError:
        if not owned(settings):
            raise
        # Somebody became the owner meanwhile, and changed what was being read.
        return asyncio.run(_over_the_socket(settings, work))


def change(settings: Settings, work: Work[T]) -> T:
    """Do this work, which changes something, whoever owns the store."""
    check_kept(settings)
    if settings.on_server:
        return asyncio.run(_on_server(settings, work))
    return through_owner(
        lambda: asyncio.run(_boxed(settings, work)) if owned(settings) else None,
        lambda: asyncio.run(_owning(settings, work)),
    )


def through_owner(ask_owner: Callable[[], list[A] | None], alone: Callable[[], A]) -> A:
    """Ask the owner, or do it alone under the lock; wait a little for one that starts or stops.

    The owner's answer comes in a list, and None means that there is none.
    """
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = ask_owner()
        if answer is not None:
            return answer[0]
        try:
            return alone()
        except DirectoryInUse:
            if time.monotonic() >= give_up:
                raise
        time.sleep(_LOOK_AGAIN_SECONDS)


def with_store(settings: Settings, work: Work[T]) -> T:
    """Own the store for a moment. Raise ``DirectoryInUse`` at once if somebody else does."""
    check_kept(settings)
    return asyncio.run((_on_server if settings.on_server else _owning)(settings, work))


def owned(settings: Settings) -> bool:
    """Whether the store has an owner that listens; of a server, whether a daemon does here."""
    connection = _connected(settings)
    if connection is not None:
        connection.close()
    return connection is not None


def check_kept(settings: Settings) -> None:
    """Raise ``InvalidInput`` if another process cannot reach the store at all."""
    if settings.directory is None and not settings.on_server:
        raise InvalidInput("store", f"{settings.store_shown!r} ends with the process that has it")


def ask(
    settings: Settings, method: str, path: str, body: bytes, kind: type[A], *also: int
) -> A | None:
    """Ask the store's owner; None when there is none. Raise what the owner raised.

    An answer of one of ``also``, beside 200, is an answer too.
    """
    connection = _connected(settings)
    if connection is None:
        return None
    import http.client  # noqa: PLC0415 - only with an owner

    from holdfast.engines.protocol import messages  # noqa: PLC0415

    talk = http.client.HTTPConnection("holdfast", timeout=_ANSWER_SECONDS)
    talk.sock = connection
    try:
        talk.request(method, path, body)
        response = talk.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"the owner of {settings.store_shown} went away before it answered ({error}): look "
            "with `holdfast status` before you try again"
        ) from None
    finally:
        talk.close()
    if response.status == messages.REFUSED:
        raise messages.read_error(answer)
    if response.status != messages.OK and response.status not in also:
        raise Unavailable(
            f"the owner of {settings.store_shown} answered {response.status} to {path}: is it of "
            "another version?"
        )
    return msgspec.json.decode(answer, type=kind)


def _connected(settings: Settings) -> socket.socket | None:
    """Return a connection to the owner; None if nobody listens."""
    if settings.store == MEMORY_STORE or not hasattr(socket, "AF_UNIX"):
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_ANSWER_SECONDS)
    try:
        connection.connect(control_path(settings))
    except OSError as error:
        connection.close()
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            return None
        raise Unavailable(
            f"the owner of {settings.store_shown} cannot be reached: {error}"
        ) from None
    return connection


async def _boxed(settings: Settings, work: Work[T]) -> list[T]:
    return [await _over_the_socket(settings, work)]


async def _over_the_socket(settings: Settings, work: Work[T]) -> T:
    from holdfast.engines.client.engine import ClientEngine  # noqa: PLC0415 - only with an owner

    engine = ClientEngine(socket_path(str(settings.directory)), patience_seconds=PATIENCE_SECONDS)
    try:
        return await work(Operations(engine))
    finally:
        await engine.close()


async def _reading(settings: Settings, work: Work[T]) -> T:
    from holdfast.engines.contract import EngineOptions  # noqa: PLC0415 - only without an owner
    from holdfast.engines.journal.readonly_engine import open_readonly  # noqa: PLC0415
    from holdfast.engines.journal.wal.disk import LocalDisk  # noqa: PLC0415

    disk = LocalDisk(str(settings.directory), snapshots=settings.snapshot_directory)
    options = EngineOptions(
        remember_seconds=settings.remember_seconds,
        max_processing_seconds=settings.max_processing_seconds,
    )
    try:
        engine = await open_readonly(disk, options)
    except OSError as error:
        raise StorageError(f"{settings.store_shown} cannot be read: {error}") from error
    try:
        return await work(Operations(engine))
    finally:
        await engine.close()


async def _on_server(settings: Settings, work: Work[T]) -> T:
    from holdfast.stores.opening import open_server  # noqa: PLC0415 - only with a server

    engine = await open_server(settings)
    try:
        return await work(Operations(engine, default_max_attempts=settings.max_attempts))
    finally:
        await engine.close()


async def _owning(settings: Settings, work: Work[T]) -> T:
    from holdfast.stores.opening import own_store  # noqa: PLC0415 - only when alone

    engine = await own_store(settings, patience_seconds=0.0)
    try:
        return await work(Operations(engine, default_max_attempts=settings.max_attempts))
    finally:
        await engine.close()
