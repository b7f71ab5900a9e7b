"""Reaching the store from a command: through its owner if there is one, directly if not.

With an owner, every verb goes over its socket. Without one, a command that only looks reads the
directory, and one that changes something owns it for a moment. A server has no owner.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from holdfast.daemon.control_socket import control_path
from holdfast.engines.contract import Engine
from holdfast.model.errors import DirectoryInUse, InvalidInput, StorageError, Unavailable
from holdfast.operations.operations import Operations
from holdfast.settings import MEMORY_STORE, Settings
from holdfast.stores.opening import connect_postgres, open_client, open_readonly, own_journal

T = TypeVar("T")
A = TypeVar("A")
Work = Callable[[Operations], Awaitable[T]]

PATIENCE_SECONDS = 5.0
_RETRY_SECONDS = 0.05
_ANSWER_SECONDS = 60.0


def read_store(settings: Settings, work: Work[T]) -> T:
    """Do read-only work, through the owner of the store if it has one."""
    require_persistent(settings)
    if settings.on_server:
        return _run(settings, work, connect_postgres)
    if has_owner(settings):
        return _run(settings, work, open_client)
    try:
        return _run(settings, work, open_readonly)
    except StorageError:
        if not has_owner(settings):
            raise
        # A process became the owner meanwhile, and changed what was being read.
        return _run(settings, work, open_client)


def write_store(settings: Settings, work: Work[T]) -> T:
    """Do work that changes something, through the owner of the store if it has one."""
    require_persistent(settings)
    if settings.on_server:
        return _run(settings, work, connect_postgres)
    return through_owner(
        lambda: [_run(settings, work, open_client)] if has_owner(settings) else None,
        lambda: _run(settings, work, _own),
    )


def through_owner(ask_owner: Callable[[], list[A] | None], alone: Callable[[], A]) -> A:
    """Ask the owner, or do it alone under the lock; retry while an owner starts or stops.

    ``ask_owner`` returns the answer in a list, or None if there is no owner.
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
        time.sleep(_RETRY_SECONDS)


def with_store(settings: Settings, work: Work[T]) -> T:
    """Own the store for a moment. Raise ``DirectoryInUse`` at once if another process does."""
    require_persistent(settings)
    return _run(settings, work, connect_postgres if settings.on_server else _own)


def has_owner(settings: Settings) -> bool:
    """Whether the store has an owner that listens; of a server, whether a daemon does here."""
    connection = _connected(settings)
    if connection is not None:
        connection.close()
    return connection is not None


def require_persistent(settings: Settings) -> None:
    """Raise ``InvalidInput`` if another process cannot reach the store at all."""
    if settings.directory is None and not settings.on_server:
        raise InvalidInput("store", f"{settings.store_shown!r} ends with the process that has it")


def request_owner(
    settings: Settings, method: str, path: str, body: bytes, kind: type[A], *also: int
) -> A | None:
    """Send a request to the store's owner; return None if there is none, raise what it raised.

    Statuses of ``also`` count as answers, beside 200.
    """
    connection = _connected(settings)
    if connection is None:
        return None
    import http.client  # noqa: PLC0415 - only with an owner

    from holdfast.engines.protocol import messages  # noqa: PLC0415

    http_connection = http.client.HTTPConnection("holdfast", timeout=_ANSWER_SECONDS)
    http_connection.sock = connection
    try:
        http_connection.request(method, path, body)
        response = http_connection.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"the owner of {settings.store_shown} went away before it answered ({error}): look "
            "with `holdfast status` before you try again"
        ) from None
    finally:
        http_connection.close()
    if response.status == messages.REFUSED:
        raise messages.read_error(answer)
    if response.status != messages.OK and response.status not in also:
        raise Unavailable(
            f"the owner of {settings.store_shown} answered {response.status} to {path}: is it of "
            "another version?"
        )
    return msgspec.json.decode(answer, type=kind)


def _connected(settings: Settings) -> socket.socket | None:
    """Return a connection to the owner; None if no process listens."""
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


def _run(
    settings: Settings, work: Work[T], open_engine: Callable[[Settings], Awaitable[Engine]]
) -> T:
    async def run() -> T:
        engine = await open_engine(settings)
        try:
            return await work(Operations(engine, default_max_attempts=settings.max_attempts))
        finally:
            await engine.close()

    return asyncio.run(run())


async def _own(settings: Settings) -> Engine:
    return await own_journal(settings, 0.0)
