"""Looks at what has changed in a store, once for all who watch in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection

from holdfast.engines.clock import monotonic as system_monotonic
from holdfast.engines.contract import Engine
from holdfast.engines.entropy import random_bytes
from holdfast.model import api_key
from holdfast.model.access import Caller
from holdfast.model.change_feed import JOBS, QUEUE, ChangeMarks
from holdfast.model.errors import HoldfastError

POLL_SECONDS = 1.0
_COST_FACTOR = 20
"""A look that takes long is repeated after so many times its length."""

Name = tuple[str, str]


class ChangeWatch:
    """What has changed, by number: each look that finds a change has the next one."""

    def __init__(self, engine: Engine, monotonic: Callable[[], float] = system_monotonic) -> None:
        """``engine`` is the store itself: ``changed`` tells each watcher what it may know."""
        self._engine = engine
        self._monotonic = monotonic
        self.life = random_bytes(6).hex()
        """Numbers of another life cannot be compared."""
        self.number = 0
        self.known_from = 0
        """Of what changed before this number nothing is known."""
        self.revoked: frozenset[str] = frozenset()
        """The keys of watchers that are no longer there."""
        self.closed = False
        """Whether every watcher is to end."""
        self._feed: str | None = None
        self._marks: dict[Name, str] = {}
        self._changed: dict[Name, int] = {}
        self._keys: Counter[str] = Counter()
        self._looking: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()

    @property
    def watchers(self) -> int:
        """How many watch."""
        return self._keys.total()

    def watchers_of(self, key_id: str) -> int:
        """How many watch with this key."""
        return self._keys[key_id]

    @contextlib.asynccontextmanager
    async def watching(self, key_id: str) -> AsyncIterator[None]:
        """Look while the context is open; raise what the first look raises."""
        self._keys[key_id] += 1
        try:
            if self._looking is None:
                await self._look()
            if self._looking is None:  # another may have begun meanwhile
                self._looking = asyncio.create_task(self._go_on())
            yield
        finally:
            self._keys[key_id] -= 1
            if not self.watchers and self._looking is not None:
                looking, self._looking = self._looking, None
                looking.cancel()

    async def wait(self, seen: int, seconds: float) -> None:
        """Return when there is something after this number, or after so many seconds."""
        if self.number != seen or self.closed:
            return
        looked = self._looked
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await looked.wait()

    def close(self) -> None:
        """Have every watcher end."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._looked.set()
        self._looked = asyncio.Event()

    def changed(self, topics: Collection[str], reach: Caller, after: int) -> list[str]:
        """Return those of these topics that have changed after a number, within this reach."""
        names = {name for name, number in self._changed.items() if number > after}
        return [topic for topic in topics if any(_concerns(topic, reach, one) for one in names)]

    async def _go_on(self) -> None:
        while True:
            started = self._monotonic()
            with contextlib.suppress(HoldfastError, OSError):
                await self._look()
            spent = self._monotonic() - started
            await asyncio.sleep(max(POLL_SECONDS, spent * _COST_FACTOR))

    async def _look(self) -> None:
        found = await self._engine.changes()
        watched = [key for key, count in self._keys.items() if count > 0]
        keys = [key for key in watched if api_key.is_stored(key)]
        there = {one.name for one in await self._engine.records(api_key.KIND, keys)} if keys else {}
        revoked = frozenset(keys).difference(there)
        news = self._take(found) or revoked != self.revoked
        self.revoked = revoked
        if news:
            self._wake()

    def _take(self, found: ChangeMarks) -> bool:
        """Compare with the look before; return whether something has changed."""
        marks = {(one.tenant, one.topic): one.mark for one in found.marks}
        before, self._marks = self._marks, marks
        if found.feed != self._feed:
            self._feed = found.feed
            self._changed.clear()
            self.number += 1
            self.known_from = self.number
            return True
        names = [name for name in before | marks if before.get(name) != marks.get(name)]
        if names:
            self.number += 1
            self._changed.update(dict.fromkeys(names, self.number))
        return bool(names)


def _concerns(topic: str, reach: Caller, changed: Name) -> bool:
    tenant, name = changed
    if not name.startswith(QUEUE):
        return topic == name and reach.unlimited
    if reach.tenant not in (None, tenant):
        return False
    # Whose reach is limited by scopes does not learn which queue it was.
    return topic in (JOBS, name) or (bool(reach.scopes) and topic.startswith(QUEUE))
