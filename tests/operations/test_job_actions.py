"""What people do to work: confirmations, the audit, and others who do it too."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import pytest

from holdfast.engines.forwarding import ForwardingEngine
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model import outcome as outcomes
from holdfast.model.actions import ReplayJobs
from holdfast.model.errors import IllegalTransition
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob, State
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter
from holdfast.operations.bulk import OperationRequest
from holdfast.operations.operations import Operations
from holdfast.testing import VirtualClock

from .test_operations import WHO, Desk, run


async def bury(desk: Desk, *ids: str, reason: str = "upstream_5xx") -> None:
    await desk.engine.enqueue([NewJob(task="t", id=job_id) for job_id in ids])
    taken = (await desk.engine.claim(queues=["default"], worker="w", limit=len(ids))).jobs
    await desk.engine.settle([outcomes.dead(job, Failure.of(reason, "no")) for job in taken])


async def replay(desk: Desk, wanted: Filter) -> None:
    bulk, request = desk.operations.bulk, OperationRequest(action=ReplayJobs(), wanted=wanted)
    operation = await bulk.start(request, await bulk.plan(request), WHO)
    await bulk.drive(operation.id)


def test_the_audit_names_what_was_done_and_breaks_when_it_is_altered(monkeypatch):
    async def scenario(desk: Desk) -> None:
        await bury(desk, *(f"d{number}" for number in range(150)))
        wanted = Filter(ids=tuple(f"d{number}" for number in range(150)))
        await replay(desk, wanted)
        entries = [one.action for one in await desk.operations.audit()]
        assert entries == ["job.replay", "operation.completed"]
        await desk.operations.set_flag("f", WHO, on=True)
        entry = msgspec.json.decode((await desk.operations.audit())[0].changes)
        assert (len(entry["ids"]), entry["ids_count"]) == (100, 150)
        head, problem = await desk.operations.verify_audit()
        assert (head.count, problem) == (3, "")
        kept = desk.engine._history._audit
        kept[0] = msgspec.structs.replace(kept[0], at_us=kept[0].at_us + 1)
        head, problem = await desk.operations.verify_audit()
        assert (head.count, problem) == (
            0,
            "entry 1 does not follow from the one before it",
        )

    run(scenario, None)


def test_confirm_is_for_those_that_are_named_and_wait():
    async def scenario(desk: Desk) -> None:
        await desk.take(b'[{"id":"p"},{"id":"h","hold":true},{"id":"w","depends_on":["p"]}]')
        done = await desk.operations.confirm(Filter(ids=("h",)), WHO)
        assert (done.done, done.ids) == (1, ["h"])
        entry = (await desk.operations.audit())[-1]
        assert (entry.action, entry.resource_id, entry.reason) == ("job.confirm", "h", WHO.why)
        with pytest.raises(IllegalTransition):
            await desk.operations.confirm(Filter(ids=("p",)), WHO)

    run(scenario, None)


async def test_two_who_change_one_queue_at_once_both_have_their_way():
    engine = MemoryEngine(clock=VirtualClock())

    class Slow(ForwardingEngine):
        async def policies(self) -> Mapping[str, QueuePolicy]:
            found = await self.engine.policies()
            await asyncio.sleep(0)  # the other one looks too
            return found

    people = [Operations(Slow(engine)) for _ in range(2)]
    for turn in range(10):
        await asyncio.gather(
            people[0].change_policy("q", {"paused": not turn % 2}, WHO, new=True),
            people[1].change_policy("q", {"max_in_flight": turn + 1}, WHO, new=True),
        )
        policy = (await engine.policies())["q"]
        assert (policy.paused, policy.max_in_flight) == (not turn % 2, turn + 1)
    await engine.close()


async def test_a_reclaim_that_is_refused_ends_nobody_elses_lease():
    clock = VirtualClock()
    engine = MemoryEngine(clock=clock)
    await engine.enqueue([NewJob(task="t", id="held"), NewJob(task="t", id="free")])
    await engine.claim(queues=["default"], worker="w", lease_seconds=5)
    clock.advance(60)
    with pytest.raises(IllegalTransition):
        await Operations(engine).reclaim("free", "default", WHO)
    [held] = await engine.get(["held"])
    assert held is not None
    assert (held.state, held.losses) == (State.IN_FLIGHT, 0)
    await engine.close()
