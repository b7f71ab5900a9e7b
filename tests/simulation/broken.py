"""Owners and loops with one mistake each, which the simulation must find."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from holdfast.engines.contract import HeldJob
from holdfast.engines.embedded.event_log import EventLog
from holdfast.engines.journal.wal.group_commit import SyncMode
from holdfast.engines.read_models.contract import Apply
from holdfast.model.access import Caller
from holdfast.model.effects import Enqueued
from holdfast.model.errors import LeaseLost
from holdfast.model.event import Event
from holdfast.model.job import Job, State
from holdfast.model.outcome import Outcome
from holdfast.model.read_model import ReadModel
from holdfast.testing.simulation.owner import CheckedCommands, SimulatedJournal
from holdfast.testing.simulation.projected import KeptReadModels
from holdfast.testing.simulation.scenario import Scenario, draw_scenario
from holdfast.worker.loops import LeaseLoop


class _UnfencedCommands(CheckedCommands):
    def _held(self, lease: HeldJob | Outcome, caller: Caller) -> Job | None:
        job = self._state.get(lease.tenant, lease.id)
        return job if job is not None and job.state is State.IN_FLIGHT else None


class Unfenced(SimulatedJournal):
    """Accepts outcomes with any token."""

    commands_type = _UnfencedCommands


class _ForgetfulEventLog(EventLog):
    def _jobs(self, events: Sequence[Event], named: Collection[str], now_us: int) -> list[Enqueued]:
        return super()._jobs(events, named, now_us)[1:]


class ForgetsAJob(SimulatedJournal):
    """Commits events without one of their jobs."""

    event_log_type = _ForgetfulEventLog


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


class _ForgetfulReadModels(KeptReadModels):
    async def apply(
        self, table: ReadModel, generation: int, apply: Apply, outcomes: Sequence[Outcome]
    ) -> list[LeaseLost | None]:
        found = await self._generation(table, generation)
        found.file.apply(lambda _rows: None, (), [(one.tenant, one.id) for one in outcomes])
        return await super().apply(table, generation, apply, outcomes)


class AppliesTwice(SimulatedJournal):
    """Applies events again whose rows were stored, but whose jobs were not settled."""

    read_models_type = _ForgetfulReadModels
