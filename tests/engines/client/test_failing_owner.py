"""The owner's log fails under it: to its clients that is as if it had been killed."""

import asyncio
import contextlib

import pytest

from holdfast.engines.client import connection
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.contract import Counts, Receipt
from holdfast.model.audit import Attribution
from holdfast.model.errors import DurabilityLost, Unavailable
from holdfast.model.outcome import completed
from holdfast.testing import Fault

from .rig import Owner, Rig, eventually, jobs_named, rigged


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE_SECONDS", 0.0001)


async def counts(rig: Rig) -> Counts:
    return (await rig.owner.engine.counts()).get("default", Counts())


def test_an_owner_whose_log_fails_is_as_good_as_gone_and_the_next_one_is_asked():
    async def scenario(rig: Rig) -> None:
        owner, client = rig.owner, ClientEngine(rig.owner.path, clock=rig.owner.clock)
        await client.enqueue(jobs_named("a"))
        (job,) = (await client.claim(queues=["default"], worker="w")).jobs
        owner.disk.faults[owner.disk.calls + 2] = Fault.EIO  # written, but not synced
        calls = asyncio.gather(
            client.enqueue(jobs_named("b")),
            client.settle([completed(job)]),
            client.claim(queues=["other"], worker="w", wait_seconds=0.05),
        )
        await eventually(lambda: _has_failed(owner))
        with contextlib.suppress(DurabilityLost):
            await owner.stop()
        owner.disk = owner.disk.crash()
        await owner.start()
        while not calls.done():
            owner.clock.advance(0.01)  # for the claim that waits
            await asyncio.sleep(0)
        receipts, settled, claim = await calls
        assert receipts == [Receipt("b")]
        assert settled == [None]
        assert claim.jobs == []
        assert await counts(rig) == Counts(pending=1, completed=1)
        await client.close()

    rigged(scenario)


async def _has_failed(owner: Owner) -> bool:
    return owner.engine.failure is not None


def test_a_call_that_changes_something_says_that_nobody_knows_when_the_log_fails_under_it():
    async def scenario(rig: Rig) -> None:
        owner = rig.owner
        owner.disk.faults[owner.disk.calls + 1] = Fault.EIO
        with pytest.raises(Unavailable, match="it is unknown whether"):
            await rig.client.set_flag("f", Attribution("ann", "because"), on=True)
        with contextlib.suppress(DurabilityLost):
            await owner.stop()
        owner.disk = owner.disk.crash()
        await owner.start()

    rigged(scenario)
