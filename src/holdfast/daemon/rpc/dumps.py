"""Dumps under way: a client takes one in parts, over as many requests as it takes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence

from holdfast.engines.clock import monotonic
from holdfast.engines.contract import Engine
from holdfast.engines.dump.format import DumpRecord
from holdfast.engines.protocol import messages
from holdfast.model.errors import InvalidInput

IDLE_SECONDS = 60.0
MOST_AT_ONCE = 8


class _OpenDump:
    def __init__(self, batches: AsyncIterator[Sequence[DumpRecord]]) -> None:
        self.batches = batches
        self.turn = asyncio.Lock()
        self.used_at = monotonic()


class OpenDumps:
    """Each is of one moment, and is let go of when it is through or nobody has asked for long."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[str, _OpenDump] = {}

    async def next(self, session: str) -> messages.DumpAnswer:
        """Return the next part; without a session the first one of a new dump."""
        if not session:
            session = self._begin()
        dump = self._open.get(session)
        if dump is None:
            raise InvalidInput("session", "this dump was given up: begin again")
        async with dump.turn:
            batch = await anext(dump.batches, None)
            dump.used_at = monotonic()
        if batch is None:
            self._open.pop(session, None)
            return messages.DumpAnswer(session, [], done=True)
        return messages.DumpAnswer(session, list(batch))

    def _begin(self) -> str:
        now = monotonic()
        idle = [name for name, one in self._open.items() if now - one.used_at > IDLE_SECONDS]
        for name in idle:
            del self._open[name]
        if len(self._open) >= MOST_AT_ONCE:
            raise InvalidInput("session", f"{MOST_AT_ONCE} dumps are under way: wait for one")
        session = secrets.token_hex(16)
        self._open[session] = _OpenDump(self._engine.dump())
        return session
