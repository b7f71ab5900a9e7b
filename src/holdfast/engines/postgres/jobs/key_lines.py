"""Lines up keys, see ``line_up``, when a claim or a periodic loop asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engines.postgres.resources import EngineResources

from .line_up import KEYS_AT_ONCE, line_up


class KeyLines:
    """Makes jobs claimable that came in a transaction of the caller's."""

    def __init__(self, resources: EngineResources) -> None:
        self._resources = resources

    async def line_up(self, queues: Sequence[str] | None = None) -> int:
        """Line up some keys of these queues, or of all; return how many marks were taken."""
        resources = self._resources
        done = await resources.database.perform(
            lambda: line_up(queues, resources.context()), idempotent=True
        )
        if done.marks:
            resources.watermarks.forget()
            resources.waiters.wake((), done.queues)
        return done.marks

    async def line_up_all(self) -> None:
        """Line up every key that no other process is at."""
        while await self.line_up() == KEYS_AT_ONCE:
            pass
