"""The registry of the processes that run jobs, in the memory of the process that owns the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.model.errors import WorkerIdInUse
from holdfast.model.fleet import (
    REMEMBERED_SECONDS,
    CommandAnswer,
    SentCommand,
    WorkerCommand,
    WorkerEntry,
    WorkerProcess,
)
from holdfast.model.job import MICROSECONDS

_REMEMBERED_US = int(REMEMBERED_SECONDS * MICROSECONDS)


class _Entry(msgspec.Struct):
    process: WorkerProcess
    seen_at_us: int
    live_until_us: int


class _Sent(msgspec.Struct):
    command: SentCommand
    waits_until_us: int
    answers: dict[str, CommandAnswer | None]
    """By the id of the process; None: not yet."""


class Fleet:
    """Who runs jobs, and the commands to them. Arguments are checked already."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._entries: dict[str, _Entry] = {}
        self._commands: dict[str, _Sent] = {}

    def announce(
        self,
        process: WorkerProcess,
        ttl_seconds: float,
        answers: Sequence[CommandAnswer],
        now_us: int,
    ) -> list[SentCommand]:
        """See ``Engine.announce``."""
        self._forget(now_us)
        for other in self._entries.values():
            theirs = other.process
            if (
                theirs.id != process.id
                and other.live_until_us > now_us
                and not theirs.processes.keys().isdisjoint(process.processes)
            ):
                raise WorkerIdInUse(theirs.name, theirs.host, theirs.pid)
        until_us = now_us + int(ttl_seconds * MICROSECONDS)
        self._entries[process.id] = _Entry(process, now_us, until_us)
        for answer in answers:
            sent = self._commands.get(answer.command_id)
            if sent is not None and process.id in sent.answers:
                sent.answers[process.id] = answer
        return [
            sent.command
            for sent in self._commands.values()
            if sent.answers.get(process.id, ...) is None and sent.waits_until_us > now_us
        ]

    def depart(self, process_id: str) -> None:
        """See ``Engine.depart``."""
        self._entries.pop(process_id, None)

    def workers(self, now_us: int, *, gone: bool) -> list[WorkerEntry]:
        """See ``Engine.workers``."""
        self._forget(now_us)
        found = [
            WorkerEntry(entry.process, entry.seen_at_us, live=entry.live_until_us > now_us)
            for entry in self._entries.values()
        ]
        found = [entry for entry in found if entry.live or gone]
        return sorted(found, key=lambda entry: (entry.process.name, entry.process.id))

    def command(
        self,
        command: WorkerCommand,
        process_ids: Sequence[str],
        who: tuple[str, str],
        ttl_seconds: float,
        now_us: int,
    ) -> str:
        """See ``Engine.command``; its audit is committed already."""
        command_id = self._random_bytes(16).hex()
        sent = SentCommand(command_id, command, *who)
        until_us = now_us + int(ttl_seconds * MICROSECONDS)
        self._commands[command_id] = _Sent(sent, until_us, dict.fromkeys(process_ids))
        return command_id

    def answers(self, command_id: str) -> list[CommandAnswer]:
        """See ``Engine.answers``."""
        sent = self._commands.get(command_id)
        found = () if sent is None else sent.answers.values()
        return [answer for answer in found if answer is not None]

    def _forget(self, now_us: int) -> None:
        before_us = now_us - _REMEMBERED_US
        for process_id, entry in list(self._entries.items()):
            if entry.live_until_us < before_us:
                del self._entries[process_id]
        for command_id, sent in list(self._commands.items()):
            if sent.waits_until_us < before_us:
                del self._commands[command_id]
