"""The owner of a store as another process sees it: calls go out, answers and errors come back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TypeVar

import msgspec

from holdfast.engines.protocol import messages
from holdfast.model.errors import (
    DurabilityLost,
    HoldfastError,
    InvalidInput,
    NoOwner,
    TooLarge,
    Unavailable,
    UnknownFormat,
    WrongLoop,
)

from .channel import CallChannel, ClaimChannels, Orphaned
from .connection import Backoff, ConnectionBroken, closed

LEAVE_SECONDS = 1.0
"""How long a close waits for the owner to let go of claims that wait."""

A = TypeVar("A")
Q = TypeVar("Q")


class Transport:
    """Bound to the event loop, and the process, of its first call."""

    def __init__(self, path: str, patience_seconds: float) -> None:
        self.path = path
        self.patience_seconds = patience_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._closed = False

    async def call(self, verb: messages.Verb[Q, A], body: bytes) -> A:
        """Return the answer to a call that does no harm when it is made twice."""
        try:
            return await self.once(verb, body)
        except ConnectionBroken:
            return await self.insist(verb, body)

    async def once(
        self,
        verb: messages.Verb[Q, A],
        body: bytes,
        *,
        orphaned: Orphaned | None = None,
        until: float | None = None,
    ) -> A:
        """Return the answer, or raise what the engine raised.

        Raise ``ConnectionBroken`` if the connection ended, or the owner's log failed, and the
        outcome is unknown; ``NoOwner`` if no owner answered by ``until`` (loop time).
        """
        loop = self._enter()
        if len(body) > messages.MAX_BODY_BYTES:
            raise TooLarge(verb.name, len(body), messages.MAX_BODY_BYTES, "send fewer at once")
        if until is None:
            until = loop.time() + self.patience_seconds
        pauses = Backoff()
        while True:
            try:
                status, answer = await self._line.submit(verb.name, body, until, orphaned)
            except ConnectionBroken:
                self._check_open()
                raise
            if _has_failed(status, answer):
                raise ConnectionBroken
            left = until - loop.time()
            if status != messages.UNAVAILABLE or left <= 0:
                return self._read(verb, status, answer, len(body))
            # The owner is on its way out and has done nothing: another one may be on its way in.
            await asyncio.sleep(min(pauses.next(), left))

    async def insist(
        self,
        verb: messages.Verb[Q, A],
        body: bytes,
        advice: str = "look before you call again",
        *,
        orphaned: Orphaned | None = None,
    ) -> A:
        """Return the answer to a call whose first answer was lost, from whoever is the owner now.

        Raise ``Unavailable`` when that does not come to an end within the time of patience.
        """
        loop = self._enter()
        until = loop.time() + self.patience_seconds
        pauses = Backoff()
        doubt = (
            f"the connection broke before the answer came, so that nobody here knows whether this "
            f"{verb.name} was recorded: {advice}"
        )
        while True:
            await asyncio.sleep(pauses.next())
            try:
                return await self.once(verb, body, orphaned=orphaned, until=until)
            except ConnectionBroken:
                if loop.time() >= until:
                    raise Unavailable(f"{self.path} cannot be relied on: {doubt}") from None
            except Unavailable as error:
                raise type(error)(f"{error}. Before that, {doubt}") from error

    async def wait(
        self,
        verb: messages.Verb[Q, A],
        call_for: Callable[[float], Q],
        wait_seconds: float,
        orphaned: Orphaned,
    ) -> A:
        """Return the answer to a call that the owner may take this long to answer.

        It goes out on a connection of its own, and again, for what is left of the time, to
        whoever is the owner then.
        """
        loop = self._enter()
        give_up = loop.time() + wait_seconds
        until = loop.time() + self.patience_seconds
        pauses = Backoff()
        while True:
            body = verb.write_call(call_for(max(0.0, give_up - loop.time())))
            try:
                status, answer = await self._waits.ask(verb.name, body, until, orphaned)
            except ConnectionBroken:
                self._check_open()
                status, answer = messages.UNAVAILABLE, b""
            if _has_failed(status, answer):
                status, answer = messages.UNAVAILABLE, b""
            now = loop.time()
            if now < give_up:
                until = now + self.patience_seconds  # it had been heard
            if status != messages.UNAVAILABLE or now >= until:
                return self._read(verb, status, answer, len(body))
            await asyncio.sleep(pauses.next())

    async def close(self) -> None:
        """Let what is under way come to its end, and end the connections."""
        if self._closed:
            return
        self._closed = True
        # A forked child has its parent's connections: they are not its own to close.
        if self._loop is not None and self._pid == os.getpid():
            self._check_loop()
            await self._waits.close(LEAVE_SECONDS)
            await self._line.close(self.patience_seconds)

    @property
    def requests(self) -> int:
        """How many requests went out for calls that do not wait."""
        return 0 if self._loop is None else self._line.requests

    def _check_open(self) -> None:
        if self._closed:
            raise closed() from None

    def _enter(self) -> asyncio.AbstractEventLoop:
        self._check_open()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._pid = os.getpid()
            self._line = CallChannel(self.path)
            self._waits = ClaimChannels(self.path)
        if self._pid != os.getpid():
            raise WrongLoop(
                "this client was in use before a fork, and its connections are its parent's: "
                "make another one in this process"
            )
        self._check_loop()
        return self._loop

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoop(
                "this client belongs to the event loop on which it was first used: call it from "
                "there, or make another one for this loop"
            )

    def _read(self, verb: messages.Verb[Q, A], status: int, answer: bytes, size: int) -> A:
        """Return what this reply to a call of this size says, or raise the error that it is."""
        if status != messages.OK:
            raise self._refusal(verb.name, status, answer, size)
        try:
            return verb.read_answer(answer)
        except messages.UNREADABLE as error:
            raise Unavailable(
                f"the answer from {self.path} to this {verb.name} makes no sense ({error}): is "
                "the owner of the same version of Holdfast?"
            ) from error

    def _refusal(self, verb: str, status: int, answer: bytes, size: int) -> HoldfastError:
        if status == messages.UNAVAILABLE:
            return NoOwner(
                f"no process owns the store: the last one on {self.path} has closed it. Start "
                "one with `holdfast run`"
            )
        try:
            if status == messages.REFUSED:
                return messages.read_error(answer)
            problem = msgspec.json.decode(answer, type=messages.RequestProblem)
        except messages.UNREADABLE:
            return Unavailable(
                f"whoever answers on {self.path} is no owner of a store (HTTP status {status})"
            )
        if problem.versions:
            what = "version of the engine protocol"
            return UnknownFormat(self.path, what, max(problem.versions), messages.VERSION)
        if status == messages.BODY_TOO_LARGE:
            return TooLarge(verb, size, messages.MAX_BODY_BYTES, "send fewer at once")
        if status == messages.BAD_REQUEST:
            return InvalidInput(verb, problem.detail)
        return HoldfastError(f"{self.path} answered this {verb} with {status}: {problem.detail}")


def _has_failed(status: int, answer: bytes) -> bool:
    """Whether the owner's log failed under it: it leaves, and nobody knows what was recorded.

    To whoever asked that is as if it had been killed: the next owner knows.
    """
    if status != messages.REFUSED:
        return False
    try:
        return isinstance(messages.read_error(answer), DurabilityLost)
    except messages.UNREADABLE:
        return False
