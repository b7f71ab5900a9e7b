"""Lines up keys, see ``line_up``, when a claim or a periodic loop asks for it."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.engines.clock import monotonic
from holdfast.engines.postgres.resources import EngineResources

from .line_up import KEYS_AT_ONCE, line_up

SLOW_SECONDS = 0.25
"""A look that takes longer passes by very many marks that are dead and not removed."""
MAX_KEEP_SECONDS = 10.0
"""How long marks that were committed late are not looked for, at most."""
_MAX_KINDS = 1_000

Queues = tuple[str, ...] | None
"""Some queues; None: all."""


class FreshScan:
    """Where this process looks for marks, for each set of queues.

    Usually from the first one. Marks that were taken leave dead index entries; while an old
    transaction keeps vacuum from removing them, a look from the beginning takes longer and longer.
    It is repeated then after twenty times as long, for marks that were committed late.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: dict[Queues, tuple[float, int]] = {}

    def after(self, queues: Queues) -> int:
        """Return the place beyond which to look."""
        until, place = self._known.get(queues, (0.0, 0))
        return place if self._monotonic() < until else 0

    def scanned(self, queues: Queues, after: int, place: int, took_seconds: float) -> None:
        """Remember that there was none beyond ``after`` up to ``place``."""
        if after:
            until, _place = self._known.get(queues, (0.0, 0))
        elif took_seconds > SLOW_SECONDS:
            until = self._monotonic() + min(20 * took_seconds, MAX_KEEP_SECONDS)
        else:
            self._known.pop(queues, None)
            return
        if len(self._known) >= _MAX_KINDS:
            self._known.clear()
        self._known[queues] = until, place


class KeyLines:
    """Makes jobs claimable that came in a transaction of the caller's."""

    def __init__(self, resources: EngineResources) -> None:
        self._resources = resources
        self.scan = FreshScan(monotonic)

    async def line_up(self, queues: Queues = None) -> int:
        """Line up some keys of these queues, or of all; return how many marks were taken."""
        resources = self._resources
        after = 0 if queues is None else self.scan.after(queues)
        done = await resources.database.perform(
            lambda: line_up(queues, after, resources.context()), idempotent=True
        )
        if done.marks:
            resources.watermarks.forget()
            resources.waiters.wake((), done.queues)
        return done.marks

    async def line_up_all(self) -> None:
        """Line up every key that no other process is at."""
        while await self.line_up() == KEYS_AT_ONCE:
            pass
