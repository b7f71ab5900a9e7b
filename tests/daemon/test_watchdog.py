"""What holds the event loop up, and what is done about it."""

import asyncio
import threading

import pytest

from holdfast.daemon.watchdog import Watchdog

STALL_SECONDS = 0.1
LOOKS = 12
"""It looks four times in that time: this is three times as long."""


@pytest.mark.parametrize("disk", [True, False])
def test_a_loop_that_waits_for_the_disk_is_not_started_over_and_any_other_is(disk: bool):
    looks: list[None] = []
    released = threading.Event()
    acted: list[None] = []

    def excused() -> bool:
        looks.append(None)
        if len(looks) == LOOKS:
            released.set()
        return disk

    def act() -> None:
        acted.append(None)
        released.set()

    async def hang() -> None:
        watchdog = Watchdog(STALL_SECONDS, act, excused)
        watchdog.start()
        assert released.wait(30)
        watchdog.stop()

    asyncio.run(hang())
    assert bool(acted) is not disk
