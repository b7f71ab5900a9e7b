"""Slots that wait for work: one is woken at a time, and no wake-up is lost."""

import asyncio

from holdfast.worker.idle_slots import IdleSlots


class Slots:
    """Slots that do jobs which never wait, or do."""

    def __init__(self, count: int) -> None:
        self.idle = IdleSlots(asyncio.get_running_loop())
        self.ready: list[asyncio.Future[None] | None] = []
        self.done = 0
        self.woken = 0
        self.tasks = [asyncio.create_task(self._serve()) for _ in range(count)]

    async def _serve(self) -> None:
        while True:
            if not self.ready:
                await self.idle.wait()
                self.woken += 1
                continue
            job = self.ready.pop()
            if self.ready:
                self.idle.wake_one()
            if job is not None:
                await job
            self.done += 1

    async def bring(self, jobs: list[asyncio.Future[None] | None]) -> None:
        self.ready += jobs
        self.idle.wake_one()
        await turns()


async def turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_jobs_that_never_wait_are_done_by_the_first():
    slots = Slots(50)
    await turns()
    await slots.bring([None] * 40)
    assert slots.done == 40
    assert slots.woken <= 2


async def test_jobs_that_wait_have_a_slot_each():
    slots = Slots(50)
    await turns()
    jobs = [asyncio.get_running_loop().create_future() for _ in range(40)]
    await slots.bring([*jobs])
    assert slots.ready == []
    assert slots.woken == 40
    for job in jobs:
        job.set_result(None)
    await turns()
    assert slots.done == 40


async def test_a_slot_that_is_ended_does_not_take_the_wake_up_of_another():
    slots = Slots(5)
    await turns()
    slots.tasks[-1].cancel()  # the one that would be woken next; it does not know yet
    await slots.bring([None])
    assert slots.done == 1


async def test_a_slot_that_is_ended_when_it_was_woken_hands_the_wake_up_on():
    slots = Slots(5)
    await turns()
    slots.ready.append(None)
    slots.idle.wake_one()
    slots.tasks[-1].cancel()  # it was woken, and has not run yet
    await turns()
    assert slots.done == 1


async def test_all_are_woken_when_there_may_be_too_many():
    slots = Slots(5)
    await turns()
    slots.idle.wake_all()
    await turns()
    assert slots.woken == 5
