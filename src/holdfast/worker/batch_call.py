"""Runs a batch to an outcome for each of its items.

An error that names no item is either transient, and then every item is retried; or some item is to
blame, and the batch is called again in halves until that one is alone. Of the items of one key,
those behind one that failed are released: they run after it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from holdfast.model.fingerprint import fingerprint
from holdfast.model.job import Job
from holdfast.model.outcome import Outcome, OutcomeKind, release, snooze

if TYPE_CHECKING:
    from .attempt import Attempt

MAX_ALIKE = 16
"""After so many items that fail alone in the same way, it is not the items."""
SNOOZE_SECONDS = 30.0
"""For how long the others then wait."""

_GOES_ON = frozenset({OutcomeKind.COMPLETED, OutcomeKind.CANCELLED})


class Settled(msgspec.Struct, frozen=True):
    """The outcome of an item that the store has already: it is not settled again."""

    outcome: Outcome


CallResult: TypeAlias = list[Outcome | Settled | None]
"""What a call says about each of its items, in order; None: it may work in another call."""


class BatchRunner(Protocol):
    """Runs the items of a batch instead of a function, and may settle them itself."""

    async def run(self, jobs: Sequence[Job]) -> CallResult:
        """Return what came of each job, in order, or raise what came of all.

        None for all of them: an unnamed one is to blame, and they are called again in halves. None
        for some: these are called again without the others.
        """


class BatchCall:
    """The calls that it takes to run a batch, and what came of each item so far."""

    def __init__(
        self,
        members: Sequence[Attempt],
        call: Callable[[list[Attempt]], Awaitable[CallResult]],
        *,
        held: Callable[[Attempt], bool],
        in_time: Callable[[], bool],
    ) -> None:
        """``held`` says whether an item still has its lease, ``in_time`` whether to call again."""
        self.results: dict[int, Outcome | Settled] = {}
        """By token."""
        self._members = list(members)
        self._call = call
        self._held = held
        self._in_time = in_time
        self._failed_keys: set[tuple[str, str, str]] = set()
        self._alike: Counter[str] = Counter()

    async def run(self) -> None:
        """Call until every item has its outcome."""
        parts = deque([self._members])
        again = False
        while parts:
            part = self._left(parts.popleft())
            if not part:
                continue
            if self._alike and self._alike.most_common(1)[0][1] >= MAX_ALIKE:
                self.end(part, lambda job: snooze(job, SNOOZE_SECONDS))
                continue
            if again and not self._in_time():
                self.end(part, release)
                continue
            again = True
            result = await self._call(part)
            undecided = [one for one, found in zip(part, result, strict=True) if found is None]
            if len(undecided) == len(part):
                middle = (len(part) + 1) // 2
                parts.extendleft([part[middle:], part[:middle]])
                continue
            for one, found in zip(part, result, strict=True):
                if found is not None:
                    self._decide(one, found, alone=len(part) == 1)
            parts.appendleft(undecided)

    def end(self, members: Sequence[Attempt], outcome: Callable[[Job], Outcome]) -> None:
        """Give this outcome to the items that have none; those behind one of it are released."""
        for one in self._left(members):
            self._decide(one, outcome(one.job))

    def _left(self, members: Sequence[Attempt]) -> list[Attempt]:
        """Return those that are still to run; those behind a failed one are released."""
        left: list[Attempt] = []
        for one in members:
            key = key_of(one.job)
            if one.token in self.results:
                continue
            if not self._held(one):
                if key is not None:
                    self._failed_keys.add(key)  # it runs again, and those behind it after it
            elif key in self._failed_keys:
                self.results[one.token] = release(one.job)
            else:
                left.append(one)
        return left

    def _decide(self, one: Attempt, found: Outcome | Settled, *, alone: bool = False) -> None:
        key = key_of(one.job)
        outcome = found.outcome if isinstance(found, Settled) else found
        if isinstance(found, Outcome) and key in self._failed_keys:
            found = release(one.job)
        elif outcome.kind not in _GOES_ON and key is not None:
            self._failed_keys.add(key)
        if alone and outcome.failure is not None:
            failure = outcome.failure
            self._alike[f"{failure.error_reason} {fingerprint(failure.message)}"] += 1
        self.results[one.token] = found


def key_of(job: Job) -> tuple[str, str, str] | None:
    """Return the key of a job with its tenant and queue, if it has one."""
    return None if job.ties.key is None else (job.tenant, job.queue, job.ties.key)
