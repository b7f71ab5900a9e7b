"""Owners and loops with one mistake each, for the simulation to find."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.engines.contract import HeldJob
from holdfast.engines.journal.wal.group_commit import SyncMode
from holdfast.model.access import Caller
from holdfast.model.job import Job, State
from holdfast.testing.simulation.owner import SimulatedJournal
from holdfast.testing.simulation.scenario import Scenario, draw
from holdfast.worker.loops import LeaseLoop


class Unfenced(SimulatedJournal):
    """Takes the outcome of whoever names the job, whatever their token."""

    def _held(self, lease: HeldJob, caller: Caller) -> Job | None:
        job = self._state.get(lease.tenant, lease.id)
        return job if job is not None and job.state is State.IN_FLIGHT else None


def hasty(seed: int) -> Scenario:
    """The scenario of this seed, where answers do not wait for the disk."""
    scenario = draw(seed)
    return replace(scenario, options=replace(scenario.options, sync=SyncMode.OFF))


class Hurried(LeaseLoop):
    """Takes leases that ran out before it renews its own worker's."""

    async def step(self, now_us: int) -> int:
        if self._reclaims:
            await self._engine.reclaim()
        return await super().step(now_us)
