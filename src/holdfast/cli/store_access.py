"""Reaching the store from a command: through its owner if there is one, directly if not.

With an owner, every verb goes over its socket. Without one, a command that only looks reads the
directory, and one that changes something owns it for a moment. A server has no owner.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.daemon.control_socket import control_path
from holdfast.engines.contract import Engine
from holdfast.engines.peer_credentials import peer_of, refuse_stranger
from holdfast.model.errors import (
    DirectoryInUse,
    InvalidInput,
    StorageError,
    StoreNotOurs,
    Unavailable,
)
from holdfast.model.principal import local_principal
from holdfast.operations.operations import Operations
from holdfast.settings import MEMORY_STORE, Settings
from holdfast.stores.opening import (
    claim_store,
    connect_postgres,
    open_client,
    open_readonly,
    open_remote,
    own_journal,
)

from .options import login_name
from .output import note

if TYPE_CHECKING:
    from http.client import HTTPConnection

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
        return _run(settings, work, partial(connect_postgres, reading=True))
    if settings.remote:
        return _run(settings, work, _over_api)
    if has_owner(settings):
        return _run(settings, work, open_client)
    try:
        return _run(settings, work, open_readonly)
    except StorageError:
        if not has_owner(settings):
            raise
        # A process became the owner meanwhile, and changed what was being read.
        return _run(settings, work, open_client)


def write_store(settings: Settings, work: Work[T], *, reads_server: bool = False) -> T:
    """Do work that changes something, through the owner of the store if it has one.

    ``reads_server``: on a server it changes nothing, and needs no right to.
    """
    require_persistent(settings)
    if settings.on_server:
        return _run(settings, work, partial(connect_postgres, reading=reads_server))
    if settings.remote:
        return _run(settings, work, _over_api)
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
    require_at_hand(settings)
    return _run(settings, work, connect_postgres if settings.on_server else _own)


def has_owner(settings: Settings) -> bool:
    """Whether the store has an owner that listens; of a server, whether a daemon does here.

    Raise ``Unavailable`` if it listens and does not answer.
    """
    try:
        connection = _connected(settings)
    except _OwnerSilent as silent:
        raise Unavailable(str(silent)) from None
    if connection is not None:
        connection.close()
    return connection is not None


def require_persistent(settings: Settings) -> None:
    """Raise ``InvalidInput`` if another process cannot reach the store at all."""
    if settings.store == MEMORY_STORE:
        raise InvalidInput("store", f"{settings.store_shown!r} ends with the process that has it")


def require_at_hand(settings: Settings) -> None:
    """Raise ``InvalidInput`` if the store itself cannot be opened from here."""
    require_persistent(settings)
    if settings.remote:
        problem = f"{settings.store_shown} is on another machine: give this command there"
        raise InvalidInput("store", problem)


def request_owner(
    settings: Settings,
    method: str,
    path: str,
    body: bytes,
    kind: type[A],
    *also: int,
    or_server: bool = False,
) -> A | None:
    """Send a request to the store's owner; return None if there is none, raise what it raised.

    Statuses of ``also`` count as answers, beside 200. With ``or_server`` the caller can ask the
    server instead: of one, a daemon that does not answer is passed over, and that is said.
    """
    try:
        connection = _connected(settings)
    except _OwnerSilent as silent:
        if not (or_server and settings.on_server):
            raise Unavailable(str(silent)) from None
        note(f"holdfast: {silent}. This goes to the server itself")
        return None
    if connection is None:
        return None
    import http.client  # noqa: PLC0415 - only with an owner

    from holdfast.engines.protocol import messages  # noqa: PLC0415

    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"the owner of {settings.store_shown} went away before it answered ({error}), and may "
            "have done what was asked: look before you try again"
        ) from None
    finally:
        connection.close()
    if response.status == messages.REFUSED:
        raise messages.read_error(answer)
    if response.status != messages.OK and response.status not in also:
        raise Unavailable(
            f"the owner of {settings.store_shown} answered {response.status} to {path}: is it of "
            "another version?"
        )
    return msgspec.json.decode(answer, type=kind)


class _OwnerSilent(Exception):
    """The owner of the store listens and does not answer: nothing was asked of it."""


def _connected(settings: Settings) -> HTTPConnection | None:
    """Return a connection to an owner that answers; None if no process listens.

    Raise ``_OwnerSilent`` if it does not answer within ``PATIENCE_SECONDS``.
    """
    if settings.store == MEMORY_STORE or not hasattr(socket, "AF_UNIX"):
        return None
    claim_store(settings)  # a socket in another's directory is another's
    path = control_path(settings)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(PATIENCE_SECONDS)
    try:
        sock.connect(path)
        refuse_stranger(sock, path)
    except StoreNotOurs:
        sock.close()
        raise
    except OSError as error:
        sock.close()
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            return None
        if isinstance(error, TimeoutError | BlockingIOError):
            raise _OwnerSilent(f"the owner of {settings.store_shown} {_SILENT}") from None
        raise Unavailable(
            f"the owner of {settings.store_shown} cannot be reached: {error}"
        ) from None
    import http.client  # noqa: PLC0415 - only with an owner

    connection = http.client.HTTPConnection("holdfast", timeout=_ANSWER_SECONDS)
    connection.sock = sock
    try:
        connection.request("GET", "/health/live")
        connection.getresponse().read()
        sock.settimeout(_ANSWER_SECONDS)  # an error if it answered with `connection: close`
    except TimeoutError:
        problem = _silent(settings, sock)
        connection.close()
        raise problem from None
    except (OSError, http.client.HTTPException):
        connection.close()
        return None  # it is leaving
    return connection


def _silent(settings: Settings, sock: socket.socket) -> _OwnerSilent:
    """Return the error for the owner at the other end of this socket."""
    pid = peer_of(sock, control_path(settings)).pid
    if pid is None:
        return _OwnerSilent(f"the owner of {settings.store_shown} {_SILENT}")
    what = f"process {pid}, which owns {settings.store_shown},"
    if settings.on_server:
        what = f"process {pid}, the daemon of {settings.store_shown} on this machine,"
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        state = ""
    if state in _STOPPED:
        return _OwnerSilent(f"{what} is stopped: `kill -CONT {pid}` lets it continue")
    return _OwnerSilent(
        f"{what} {_SILENT}, or end it with `kill -9 {pid}`: what was acknowledged is kept"
    )


_SILENT = (
    f"did not answer within {PATIENCE_SECONDS:g} s: a task may block its event loop. Look for "
    "worker.loop_blocked in its log, and try again"
)
_STOPPED = ("T", "t")
"""The states of a process that a signal or a debugger has stopped."""


def _run(
    settings: Settings, work: Work[T], open_engine: Callable[[Settings], Awaitable[Engine]]
) -> T:
    principal = local_principal(_login())

    async def run() -> T:
        engine = await open_engine(settings)
        try:
            operations = Operations(
                engine, default_max_attempts=settings.max_attempts, principal=principal
            )
            return await work(operations)
        finally:
            await engine.close()

    return asyncio.run(run())


def _login() -> str:
    """Return the login name; a container may have none."""
    try:
        return login_name(None)
    except InvalidInput:
        return "unknown"


async def _over_api(settings: Settings) -> Engine:
    return open_remote(settings)


async def _own(settings: Settings) -> Engine:
    return await own_journal(settings, 0.0)
