"""What the parts of one engine share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.engines.clock import Clock, SystemClock, monotonic
from holdfast.engines.embedded.waiters import ClaimWaiters
from holdfast.model.record import Record

from .admin.records import with_once
from .call_context import CallContext
from .connection.database import Database
from .connection.sansio import SansIO
from .errors import CommitUnknown, check_url
from .jobs.claim_statements import WatermarkCache
from .jobs.lost_replies import LostReplies, outcome_unknown
from .jobs.unit_of_work import UnitOfWork
from .options import PostgresOptions

T = TypeVar("T")


class EngineResources:
    """The database, the clock, the waiting claims, and what this process remembers of the tables.

    ``clock`` is for tests: without it the server's time counts.
    """

    def __init__(self, url: str, options: PostgresOptions | None, clock: Clock | None) -> None:
        self.options = options or PostgresOptions()
        self.database = Database(check_url(url), self.options)
        self._test_clock = clock
        self._last_created_us = 0
        self.clock = clock or SystemClock()
        self.waiters = ClaimWaiters(self.clock)
        self.watermarks = WatermarkCache(monotonic)
        self.lost_replies = LostReplies(self.database)

    def context(self) -> CallContext:
        """Return the context of a call that begins now."""
        now_us = None if self._test_clock is None else self._test_clock.now_us()
        return CallContext(self.options, self.options.schema, now_us)

    def enqueue_context(self, jobs: int) -> CallContext:
        """Return the context of an enqueue of this many jobs; no two have the same time.

        Without a clock for tests the database's time sees to that.
        """
        context = self.context()
        if context.now_us is None:
            return context
        created_us = max(context.now_us, self._last_created_us + 1)
        self._last_created_us = created_us + jobs - 1
        return context._replace(created_us=created_us)

    def return_times(self, first_us: int, jobs: int, created: int) -> None:
        """Free the times from ``first_us`` on of the jobs that an enqueue did not create.

        They stay taken if another enqueue has later ones.
        """
        if self._last_created_us == first_us + jobs - 1:
            self._last_created_us = first_us + created - 1

    def take_times(self, first_us: int | None, jobs: int) -> None:
        """Record that an append has created this many jobs from ``first_us`` on."""
        if first_us is not None:
            self._last_created_us = max(self._last_created_us, first_us + jobs - 1)

    async def perform_once(
        self,
        verb: str,
        make: Callable[[], SansIO[T]],
        *,
        idempotent: bool = False,
        once: Record | None = None,
        changed: Callable[[T], bool] = lambda _done: True,
    ) -> T:
        """Perform a verb that is not repeated after a lost reply, unless it is ``idempotent``.

        ``once`` is committed with what it ``changed``: it tells a repetition. Raise
        ``Unavailable`` if its outcome is unknown.
        """
        idempotent = idempotent or once is not None
        try:
            return await self.database.perform(
                lambda: with_once(make(), once, self.context(), changed), idempotent=idempotent
            )
        except CommitUnknown as error:
            raise outcome_unknown(verb) from error.__cause__

    def announce(self, changes: UnitOfWork) -> None:
        """Wake the claims of this process for which these changes may have made work."""
        self.wake(changes.queues())

    def wake(self, queues: Sequence[str]) -> None:
        """Wake the claims of this process that wait for these queues."""
        if queues:  # a fruitless look is expensive where dead rows pile up
            self.watermarks.forget()
            self.waiters.wake((), queues)
