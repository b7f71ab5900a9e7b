"""Reaching the store from a command: through its owner if there is one, directly if not."""

from __future__ import annotations

import asyncio
import http.client
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from holdfast.engines import wire
from holdfast.engines.base import Engine
from holdfast.engines.socket_path import socket_path
from holdfast.model.errors import DirectoryInUse, InvalidInput, Unavailable
from holdfast.settings import Settings

T = TypeVar("T")
A = TypeVar("A")

PATIENCE_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.05
_ANSWER_SECONDS = 60.0


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("holdfast", timeout=_ANSWER_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(settings: Settings, method: str, path: str, body: bytes, kind: type[A]) -> A | None:
    """Ask the store's owner; None when there is none. Raise what the owner raised."""
    if settings.directory is None or not hasattr(socket, "AF_UNIX"):
        return None
    connection = _Connection(socket_path(settings.directory))
    try:
        connection.connect()
    except OSError as error:
        connection.close()
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            return None
        raise Unavailable(f"the owner of {settings.store} cannot be reached: {error}") from None
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"the owner of {settings.store} went away before it answered ({error}): look with "
            "`holdfast status` before you try again"
        ) from None
    finally:
        connection.close()
    if response.status == wire.REFUSED:
        raise wire.read_error(answer)
    if response.status != wire.OK:
        raise Unavailable(
            f"the owner of {settings.store} answered {response.status} to {path}: is it of "
            "another version?"
        )
    return msgspec.json.decode(answer, type=kind)


def through_owner(ask_owner: Callable[[], A | None], alone: Callable[[], A]) -> A:
    """Ask the owner, or do it alone under the lock; wait a little for one that starts or stops."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = ask_owner()
        if answer is not None:
            return answer
        try:
            return alone()
        except DirectoryInUse:
            if time.monotonic() >= give_up:
                raise
        time.sleep(_LOOK_AGAIN_SECONDS)


def with_store(settings: Settings, work: Callable[[Engine], Awaitable[T]]) -> T:
    """Own the store for a moment. Raise ``DirectoryInUse`` at once if somebody else does."""
    from holdfast.interfaces.opening import own_store  # noqa: PLC0415 - only when alone

    if settings.directory is None:
        raise InvalidInput("store", f"{settings.store!r} ends with the process that has it")

    async def use() -> T:
        engine = await own_store(settings, patience_seconds=0.0)
        try:
            return await work(engine)
        finally:
            await engine.close()

    return asyncio.run(use())
