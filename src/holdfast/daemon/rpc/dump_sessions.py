"""Dumps in progress: a client fetches one in parts, a request each."""

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
MAX_SESSIONS = 8


class _Session:
    def __init__(self, batches: AsyncIterator[Sequence[DumpRecord]]) -> None:
        self.batches = batches
        self.lock = asyncio.Lock()
        self.used_at = monotonic()


class DumpSessions:
    """Each dump is of one moment. It ends when it is complete or was idle for too long."""

    def __init__(self) -> None:
        self._open: dict[str, _Session] = {}

    async def next(self, session: str, engine: Engine) -> messages.DumpAnswer:
        """Return the next part; without a session the first one of a new dump of this engine."""
        if not session:
            session = self._start(engine)
        dump = self._open.get(session)
        if dump is None:
            raise InvalidInput("session", "this dump was given up: begin again")
        async with dump.lock:
            batch = await anext(dump.batches, None)
            dump.used_at = monotonic()
        if batch is None:
            self._open.pop(session, None)
            return messages.DumpAnswer(session, [], done=True)
        return messages.DumpAnswer(session, list(batch))

    def _start(self, engine: Engine) -> str:
        now = monotonic()
        idle = [name for name, one in self._open.items() if now - one.used_at > IDLE_SECONDS]
        for name in idle:
            del self._open[name]
        if len(self._open) >= MAX_SESSIONS:
            raise InvalidInput("session", f"{MAX_SESSIONS} dumps are under way: wait for one")
        session = secrets.token_hex(16)
        self._open[session] = _Session(engine.dump())
        return session
