"""Owners and loops with one mistake each, which the simulation must find."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.engines.contract import HeldJob
from holdfast.engines.journal.wal.group_commit import SyncMode
from holdfast.model import operation as operations
from holdfast.model.access import Caller
from holdfast.model.actions import AnyAction
from holdfast.model.job import MAX_TIME_US, Job, State
from holdfast.model.operation import Chunk, Operation
from holdfast.model.outcome import Outcome
from holdfast.model.search import Filter
from holdfast.testing.simulation.owner import CheckedCommands, SimulatedJournal
from holdfast.testing.simulation.scenario import Scenario, draw_scenario
from holdfast.worker.loops import LeaseLoop


class _UnfencedCommands(CheckedCommands):
    def _held(self, lease: HeldJob | Outcome, caller: Caller) -> Job | None:
        job = self._state.get(lease.tenant, lease.id)
        return job if job is not None and job.state is State.IN_FLIGHT else None


class Unfenced(SimulatedJournal):
    """Accepts outcomes with any token."""

    commands_type = _UnfencedCommands


def forget_moment_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let operations look again, at each step, for whatever matches now."""
    members, after_chunk = operations.members, operations.after_chunk

    def now(action: AnyAction, wanted: Filter, _as_of_us: int) -> Filter:
        return members(action, wanted, MAX_TIME_US - 1)

    def from_the_start(operation: Operation, chunk: Chunk, now_us: int) -> Operation:
        return replace(after_chunk(operation, chunk, now_us), after=None)

    monkeypatch.setattr(operations, "members", now)
    monkeypatch.setattr(operations, "after_chunk", from_the_start)


def unsynced(seed: int) -> Scenario:
    """Return the scenario of this seed with answers that do not wait for the sync."""
    scenario = draw_scenario(seed)
    return replace(scenario, options=replace(scenario.options, sync=SyncMode.OFF))


class ReclaimsFirst(LeaseLoop):
    """Reclaims expired leases before it renews those of its own worker."""

    async def step(self, now_us: int) -> int:
        if self._reclaims:
            await self._engine.reclaim()
        return await super().step(now_us)
