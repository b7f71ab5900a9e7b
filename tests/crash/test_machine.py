"""The journal beside the oracle, through crashes and reopenings."""

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from holdfast.engines.contract import Engine, EngineOptions
from holdfast.engines.embedded.commands import Commands
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.state.state import JournalState
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.testing import Fault, SimDisk, VirtualClock
from holdfast.testing.machine import OPTIONS, EngineMachine

EXAMPLES = int(os.environ.get("HOLDFAST_TEST_EXAMPLES", "72"))
PARTS = 3
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


class MemoryMachine(EngineMachine):
    """The oracle beside itself: the machine agrees with what it is built on."""

    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        return MemoryEngine(clock=clock, options=options)


class JournalMachine(EngineMachine):
    disk: SimDisk

    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        self.disk = SimDisk()
        return await self._open()

    async def _open(self) -> JournalEngine:
        shared = {field: getattr(OPTIONS, field) for field in EngineOptions.__struct_fields__}
        options = JournalOptions(**shared, inline=True, segment_bytes=16_384)
        return await JournalEngine.open(self.disk, clock=self.clock, options=options)

    def crash_after_calls(self, calls: int | None) -> None:
        self.disk.faults = {} if calls is None else {self.disk.calls + calls: Fault.KILL}

    async def reopen(self, cut_seed: int | None) -> Engine | None:
        self.disk = self.disk.crash(cut_seed)
        return await self._open()

    @rule()
    def compact(self) -> None:
        assert isinstance(self.subject, JournalEngine)
        self.run(self.subject.compact())

    @rule()
    def close_and_open(self) -> None:
        self.run(self.subject.close())
        self.subject = self.run(self._open())


@pytest.mark.parametrize("part", range(PARTS))
def test_the_journal_equals_the_oracle_through_crashes(part):
    some = settings(SETTINGS, max_examples=EXAMPLES // PARTS)
    run_state_machine_as_test(JournalMachine, settings=some)


def test_the_machine_agrees_with_itself():
    run_state_machine_as_test(MemoryMachine, settings=settings(SETTINGS, max_examples=10))


@pytest.mark.timeout(600)  # with another seed it takes 3 to 90 s
def test_control_an_unguarded_settle_is_found(monkeypatch):
    """Settling by id alone, as most queues do, makes the machine fail."""

    def by_id_only(self, lease, caller):
        job = self._state.get(lease.tenant, lease.id)
        in_flight = job is not None and job.state == "in_flight"
        return job if in_flight and caller.can_access(job.tenant, job.scope) else None

    original = Commands._held

    def held(self, lease, caller):
        unguarded = isinstance(self._state, JournalState)
        return by_id_only(self, lease, caller) if unguarded else original(self, lease, caller)

    monkeypatch.setattr(Commands, "_held", held)
    until_found = settings(
        SETTINGS, max_examples=5_000, stateful_step_count=100, phases=[Phase.generate]
    )
    lucky = seed(1)(type("LuckyMachine", (JournalMachine,), {}))
    with pytest.raises(AssertionError):
        run_state_machine_as_test(lucky, settings=until_found)
