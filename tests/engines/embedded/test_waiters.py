"""Claims that wait: which news wakes whom."""

import asyncio

import pytest

from holdfast.engines.embedded.waiters import ClaimWaiters
from holdfast.testing.clock import VirtualClock
from holdfast.testing.conformance.fixture import settle_down


@pytest.mark.parametrize(
    ("tasks", "kinds", "woken"),
    [
        (None, {("mail", "send")}, True),
        (None, {("slow", "send")}, False),
        (("send",), {("mail", "send")}, True),
        (("send",), {("mail", "read")}, False),
        (("send",), {("mail", "read"), ("slow", "send")}, False),
        (("send",), {("mail", "read"), ("mail", "send")}, True),
        ((), {("mail", "send")}, False),
    ],
)
async def test_only_work_that_a_claim_could_take_wakes_it(tasks, kinds, woken):
    waiters = ClaimWaiters(VirtualClock())
    wait = asyncio.ensure_future(waiters.wait(["mail"], tasks, until_us=10**18))
    await settle_down()
    waiters.wake(kinds)
    await settle_down()
    assert wait.done() is woken
    waiters.wake_all()
    await wait
    assert not waiters.waiting


@pytest.mark.parametrize(("queue", "woken"), [("mail", True), ("slow", False)])
async def test_news_of_a_queue_wakes_a_claim_whatever_its_tasks(queue, woken):
    waiters = ClaimWaiters(VirtualClock())
    wait = asyncio.ensure_future(waiters.wait(["mail"], ("send",), until_us=10**18))
    await settle_down()
    waiters.wake((), [queue])
    await settle_down()
    assert wait.done() is woken
    waiters.wake_all()
    await wait
