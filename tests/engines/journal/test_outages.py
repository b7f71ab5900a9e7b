"""An outage survives a restart of the journal, from the log and from a snapshot."""

import pytest
from msgspec.structs import replace

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.model.audit import Attribution
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outage import DependencyReport, OutagePhase
from holdfast.model.outcome import completed, retry
from holdfast.testing import SimDisk, VirtualClock

OPTIONS = JournalOptions(inline=True)
DOWN = Failure.of("connection", "refused")
OPS = Attribution("ann", "test")


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("phase", [OutagePhase.OUT, OutagePhase.RECOVERING])
async def test_an_outage_survives_a_restart(compacted: bool, phase: OutagePhase):
    disk, clock = SimDisk(), VirtualClock()
    engine = await JournalEngine.open(disk, clock=clock, options=OPTIONS)
    await engine.set_outage("earlier", OPS, on=True)
    await engine.set_outage("earlier", OPS, on=False)
    await engine.enqueue([NewJob(task="t", queue="mail@api", id=f"j{n}") for n in range(9)])
    await engine.report_outage([DependencyReport("api", tripped=True, failure=DOWN)])
    clock.advance(2)
    [probe] = (await engine.claim(queues=["mail@api"], worker="w", limit=9)).jobs
    await engine.settle([retry(probe, DOWN)])
    clock.advance(4)
    [probe] = (await engine.claim(queues=["mail@api"], worker="w", limit=9)).jobs
    if phase is OutagePhase.RECOVERING:
        await engine.settle([completed(probe)])
        await engine.report_outage([DependencyReport("api", 1, probe.claimed_at_us)])
        assert len((await engine.claim(queues=["mail@api"], worker="w", limit=9)).jobs) == 1
    before = await engine.outages(ended=True)
    assert [one.phase for one in before] == [OutagePhase.ENDED, phase]
    if compacted:
        await engine.compact()
    disk = disk.crash(seed=1)
    engine = await JournalEngine.open(disk, clock=clock, options=OPTIONS)
    assert await engine.outages(ended=True) == before
    assert (await engine.claim(queues=["mail@api"], worker="w", limit=9)).jobs == []
    clock.advance(60)
    assert len((await engine.claim(queues=["mail@api"], worker="w", limit=9)).jobs) == 1
    await engine.close()


async def test_control_a_snapshot_without_outages_fails_that(monkeypatch: pytest.MonkeyPatch):
    from holdfast.engines.journal.snapshots import compaction  # noqa: PLC0415

    head_of = compaction.head_of
    without = lambda *arguments: replace(head_of(*arguments), outages=[])
    monkeypatch.setattr(compaction, "head_of", without)
    with pytest.raises(AssertionError):
        await test_an_outage_survives_a_restart(True, OutagePhase.OUT)
