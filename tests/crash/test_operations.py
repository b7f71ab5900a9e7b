"""An operation killed at every call to the disk: each member is replayed exactly once."""

import asyncio
from collections import Counter

import pytest
from msgspec.structs import replace

from holdfast.engines.embedded.operation_steps import OperationSteps
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.model import operation as operations
from holdfast.model.actions import ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import HoldfastError
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob, State
from holdfast.model.operation import NewOperation, Operation, Outcomes, Phase
from holdfast.model.operation_ledger import OperationLedger
from holdfast.model.outcome import dead
from holdfast.model.policy import Rate
from holdfast.model.search import Filter
from holdfast.testing import Fault, SimDisk, VirtualClock

OPTIONS = JournalOptions(inline=True, segment_bytes=16 << 10, remember_seconds=1e6)
FAILURE = Failure.of("upstream_5xx", "503")
WHO = Attribution("ann", "the dependency is back")
MEMBERS = 6
NEW = NewOperation(
    id="op", action=ReplayJobs(), wanted=Filter(), rate=Rate(2, 1.0), abort_ratio=1.0
)


async def make_letters(disk: SimDisk, clock: VirtualClock) -> None:
    engine = await JournalEngine.open(disk, clock=clock, options=OPTIONS)
    await engine.enqueue([NewJob(task="t", id=f"j{n}") for n in range(MEMBERS)])
    await die(engine)
    await engine.close()


async def die(engine: JournalEngine) -> None:
    """Let everything that is due fail again."""
    claim = await engine.claim(queues=["default"], worker="w", limit=100)
    await engine.settle([dead(job, FAILURE) for job in claim.jobs])


async def go_on(disk: SimDisk, clock: VirtualClock, seconds: int) -> Operation:
    """Start the operation if it is not there, and take steps for so long."""
    engine = await JournalEngine.open(disk, clock=clock, options=OPTIONS)
    await engine.start_operation(NEW, WHO)
    for second in range(seconds):
        step = await engine.advance_operation("op")
        await engine.reclaim()
        await die(engine)
        if second == 2:
            await engine.compact()
        if step.operation.ended:
            break
        clock.advance(1)
    clock.advance(31)  # past the leases of a life before this one
    await engine.reclaim()
    await die(engine)
    found = (await engine.advance_operation("op")).operation
    await engine.close()
    return found


def run_until(disk: SimDisk, clock: VirtualClock) -> bool:
    """Run until it ends or the disk fails; return whether it ended."""
    try:
        asyncio.run(go_on(disk, clock, 20))
    except (HoldfastError, OSError):
        return False
    return True


def letters() -> tuple[SimDisk, VirtualClock]:
    disk, clock = SimDisk(), VirtualClock()
    asyncio.run(make_letters(disk, clock))
    clock.advance(60)
    return disk.crash(), clock


async def replays(disk: SimDisk, clock: VirtualClock) -> Counter[tuple[State, int]]:
    """Return how many jobs are in which state, and were replayed how often."""
    engine = await JournalEngine.open(disk, clock=clock, options=OPTIONS)
    jobs = (await engine.find(Filter(), limit=100)).jobs
    await engine.close()
    return Counter((job.state, 0 if job.replays is None else job.replays.count) for job in jobs)


ONCE = Counter({(State.DEAD, 1): MEMBERS})


def killed_at(call: int, cut: int | None) -> tuple[Counter[tuple[State, int]], Operation]:
    disk, clock = letters()
    disk.faults = {disk.calls + call: Fault.KILL}
    run_until(disk, clock)
    again = disk.crash(None if cut is None else call * 10 + cut)
    done = asyncio.run(go_on(again, clock, 20))
    return asyncio.run(replays(again.crash(), clock)), done


def calls_of_a_clean_run() -> int:
    disk, clock = letters()
    before = disk.calls
    assert run_until(disk, clock)
    return disk.calls - before


CALLS = calls_of_a_clean_run()


@pytest.mark.parametrize("cut", [None, 1], ids=["kill", "power cut"])
@pytest.mark.parametrize("share", range(2))
def test_killed_at_every_call_each_member_is_replayed_exactly_once(share, cut):
    for call in range(1 + share, CALLS + 1, 2):
        found, done = killed_at(call, cut)
        assert found == ONCE, f"killed at call {call}"
        assert (done.acted, done.phase) == (MEMBERS, Phase.COMPLETED), f"killed at call {call}"
        assert done.outcomes == Outcomes(failed=MEMBERS), f"killed at call {call}"


def wrong_at(calls: range) -> int:
    """Return after how many of these kills something other than one replay each was found."""
    wrong = 0
    for call in calls:
        found, done = killed_at(call, None)
        wrong += (found, done.acted, done.outcomes) != (
            ONCE,
            MEMBERS,
            Outcomes(failed=MEMBERS),
        )
    return wrong


def test_control_without_the_moment_members_are_replayed_again(monkeypatch):
    whole = operations.members
    unbounded = lambda action, wanted, _as_of_us: whole(action, wanted, 2**61)
    monkeypatch.setattr(operations, "members", unbounded)
    monkeypatch.setattr(operations, "after_chunk", _without_cursor(operations.after_chunk))
    assert wrong_at(range(1, 4)) == 3


def test_control_without_the_stored_place_members_are_replayed_again(monkeypatch):
    """The record of a step is left out of its commit, as if it were written later."""
    effects = OperationSteps._effects

    def forgetful(self, operation, audit, now_us):
        return effects(self, operation, audit, now_us) if not operation.acted else []

    monkeypatch.setattr(OperationSteps, "_effects", forgetful)
    assert wrong_at(range(1, 4)) == 3


def test_control_without_the_mark_outcomes_are_not_counted(monkeypatch):
    monkeypatch.setattr(OperationLedger, "count", lambda *_args: None)
    assert wrong_at(range(1, 4)) == 3


def _without_cursor(after_chunk):
    def changed(operation, chunk, now_us):
        return replace(after_chunk(operation, chunk, now_us), after=None)

    return changed
