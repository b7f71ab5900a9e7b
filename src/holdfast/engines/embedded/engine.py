"""The verbs of an engine that keeps its state in this process.

What differs between such engines is the state (how fast it finds things), the log (what survives)
and the past (where finished work goes).
"""

from __future__ import annotations

from .admin import Admin
from .commands import Commands


class EmbeddedEngine(Commands, Admin):
    """Every verb of the contract over a state, a log, a past and a clock."""

    async def close(self) -> None:
        """See ``Engine.close``."""
        if self._closed:
            return
        self._gathering.decide()
        self._closed = True
        self._waiters.wake_all()
        try:
            await self._past.close()
        finally:
            await self._log.close()
