"""Slots that wait for work, and how they are woken."""

from __future__ import annotations

import asyncio


class IdleSlots:
    """Wakes slots one by one: a slot that finds more than one job wakes the next.

    So one slot runs all jobs that never wait, and at most one other wakes up for nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: list[asyncio.Future[None]] = []
        self._waking = False
        """Whether a slot was woken that has not looked for work yet."""

    async def wait(self) -> None:
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
                self.wake_one()  # pass the wakeup on to the next slot
            raise
        self._waking = False

    def wake_one(self) -> None:
        """Wake a slot, unless one was woken and has not looked for work yet."""
        while self._idle and not self._waking:
            self._waking = _wake(self._idle.pop())

    def wake_all(self) -> None:
        """Wake every slot, so that it checks whether it is still needed."""
        idle, self._idle = self._idle, []
        for one in idle:
            _wake(one)


def _wake(idle: asyncio.Future[None]) -> bool:
    """Wake this slot; return False if it was cancelled."""
    if idle.done():
        return False
    idle.set_result(None)
    return True
