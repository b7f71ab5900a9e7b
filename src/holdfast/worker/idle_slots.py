"""Slots that have nothing to do, and how they are woken."""

from __future__ import annotations

import asyncio


class IdleSlots:
    """Wakes slots one by one: whoever finds work for two wakes the next.

    So jobs that never wait are all done by the first, and one other at most wakes up for nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: list[asyncio.Future[None]] = []
        self._waking = False
        """Whether one was woken that has not looked for work yet."""

    async def rest(self) -> None:
        """Wait to be woken."""
        idle = self._loop.create_future()
        self._idle.append(idle)
        try:
            await idle
        except asyncio.CancelledError:
            if idle in self._idle:
                self._idle.remove(idle)
            elif not idle.cancelled():
                self._waking = False
                self.wake_one()  # that was for whoever is next
            raise
        self._waking = False

    def wake_one(self) -> None:
        """Wake a slot, unless one is on its way."""
        while self._idle and not self._waking:
            self._waking = _wake(self._idle.pop())

    def wake_all(self) -> None:
        """Have every slot look whether it is still wanted."""
        idle, self._idle = self._idle, []
        for one in idle:
            _wake(one)


def _wake(idle: asyncio.Future[None]) -> bool:
    """Wake this one; return False if it was cancelled and only does not know yet."""
    if idle.done():
        return False
    idle.set_result(None)
    return True
