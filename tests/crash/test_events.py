"""Appending, killed at every call to the disk: events and their jobs are both there, or neither."""

import asyncio
from copy import deepcopy
from dataclasses import dataclass, field

import pytest

from holdfast.engines.embedded.core import EmbeddedCore
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.events.feed import EventFeed
from holdfast.engines.journal.inspection import verify
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.wal.group_commit import GroupCommit
from holdfast.model.audit import Attribution
from holdfast.model.effects import EventAppended
from holdfast.model.errors import HoldfastError
from holdfast.model.event import NewEvent
from holdfast.model.job import State
from holdfast.model.outcome import completed
from holdfast.model.search import Filter
from holdfast.model.subscription import Subscription, job_id
from holdfast.testing import Fault, SimDisk, VirtualClock

OPTIONS = JournalOptions(inline=True, segment_bytes=8192, remember_seconds=1e6)
WHO = Attribution("ann", "a test")
STEPS = 7
SHARES = 2


@dataclass
class Ledger:
    """What the engine acknowledged."""

    subscribed: bool = False
    appended: set[str] = field(default_factory=set)
    completed: set[str] = field(default_factory=set)

    async def check(self, engine: JournalEngine) -> None:
        """Hold it against what is there: no event without its job, no job without its event."""
        found = {event.id: event for event in (await engine.find_events(limit=1_000)).events}
        lost = self.appended - set(found)
        assert not lost, f"acknowledged and lost: {lost}"
        jobs = {job.id: job for job in (await engine.find(Filter(), limit=1_000)).jobs}
        wanted = {job_id("chronicle", event) for event in found}
        assert set(jobs) == wanted, "an event without its job, or a job without its event"
        for one in self.completed:
            assert jobs[one].state is State.COMPLETED
        # Each is known under its id: appended again, it is not stored again.
        again = await engine.append([new_event(int(event[-3:], 16)) for event in found])
        assert not any(receipt.created for receipt in again)
        positions = [event.position for event in found.values()]
        assert positions == sorted(positions)
        assert await engine.count_events() == len(found)


def new_event(number: int) -> NewEvent:
    return NewEvent(
        id=f"01900000-0000-7000-8000-{number:012x}",
        event_type="book.renamed",
        entity_type="book",
        entity_id=str(number % 3),
        actor_id="ann",
        payload={"title": "x" * (number * 37 % 200)},
    )


async def work(engine: JournalEngine, clock: VirtualClock, ledger: Ledger) -> None:
    """Append, project, snapshot; note what is acknowledged."""
    await engine.set_subscription("chronicle", Subscription("chronicle", "chronicle", "t"), WHO)
    ledger.subscribed = True
    number = 0
    for step in range(STEPS):
        clock.advance(1)
        news = [new_event(number + n) for n in range(step % 3 + 1)]
        number += len(news)
        ledger.appended.update(receipt.id for receipt in await engine.append(news))
        claim = await engine.claim(queues=["chronicle"], worker="w", limit=2)
        answers = await engine.settle([completed(job) for job in claim.jobs])
        ledger.completed |= {
            job.id for job, answer in zip(claim.jobs, answers, strict=True) if answer is None
        }
        if step % 2:
            await engine.compact()
        if step == 2:
            await engine.count_events()  # has them stored


def run_until_fault(disk: SimDisk, ledger: Ledger, clock: VirtualClock) -> bool:
    async def run() -> bool:
        try:
            engine = await JournalEngine.open(disk, clock=clock, options=OPTIONS)
            await work(engine, clock, ledger)
            await engine.close()
        except HoldfastError:
            return False
        return True

    return asyncio.run(run())


def check_after(disk: SimDisk, ledger: Ledger, clock: VirtualClock) -> None:
    async def run() -> None:
        for _life in range(2):
            engine = await JournalEngine.open(disk, clock=clock, options=OPTIONS)
            await ledger.check(engine)
            await engine.compact()
            await engine.close()

    asyncio.run(run())
    assert verify(disk).problems == []


def calls_of_a_clean_run() -> int:
    disk = SimDisk()
    assert run_until_fault(disk, Ledger(), VirtualClock())
    assert disk.events().exists()
    return disk.calls


CALLS = calls_of_a_clean_run()


def kill_at(call: int, *cuts: int | None) -> None:
    disk = SimDisk(faults={call: Fault.KILL})
    ledger, clock = Ledger(), VirtualClock()
    run_until_fault(disk, ledger, clock)
    for cut in cuts:
        found = disk.crash(None if cut is None else call * 1_000 + cut)
        try:
            check_after(found, deepcopy(ledger), deepcopy(clock))
        except (AssertionError, HoldfastError) as error:
            raise AssertionError(f"killed at call {call}, cut {cut}: {error}") from error


@pytest.mark.parametrize("share", range(SHARES))
def test_killed_at_every_call_events_and_jobs_are_both_there_or_neither(share):
    for call in range(1 + share, CALLS + 1, SHARES):
        kill_at(call, None, 0)


def failures(*cuts: int | None) -> int:
    """Return at how many of some calls the test fails."""
    found = 0
    for call in range(CALLS // 4, CALLS + 1, 5):
        try:
            kill_at(call, *cuts)
        except AssertionError:
            found += 1
    return found


def test_control_jobs_committed_without_their_events_fail_the_test(monkeypatch):
    commit = EmbeddedCore.commit

    def without_events(self, effects, *, essential=True):
        rest = [effect for effect in effects if not isinstance(effect, EventAppended)]
        return commit(self, rest, essential=essential)

    monkeypatch.setattr(EmbeddedCore, "commit", without_events)
    assert failures(None)


def test_control_answers_before_durability_fail_the_test(monkeypatch):
    monkeypatch.setattr(GroupCommit, "durable_future", lambda self, callers=1: self._check())
    assert failures(None, 0)


def test_control_a_log_that_is_cut_above_the_stored_events_fails_the_test(monkeypatch):
    async def nothing(self):
        return self.checkpoint

    monkeypatch.setattr(EventFeed, "cover", nothing)
    assert failures(None)
