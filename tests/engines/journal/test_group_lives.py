"""What people did with groups survives crashes, snapshots and dumps."""

import io

import pytest

from holdfast.engines.dump.format import (
    write_dump,
)
from holdfast.engines.dump.reading import read_dump
from holdfast.engines.dump.redact import redacted
from holdfast.engines.journal.inspection import verify
from holdfast.engines.journal.readonly_engine import open_readonly
from holdfast.engines.journal.restore import restore
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.actions import PurgeJobs
from holdfast.model.audit import Attribution
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.group_life import GroupChange, GroupState, GroupVerb
from holdfast.model.outcome import dead
from holdfast.testing import SimDisk
from holdfast.testing.conformance.fixture import named

from .test_engine import job, opened

REFUSED = Failure("upstream_4xx", FailureClass.DETERMINISTIC, "no such user 7", status=404)
WHO = Attribution("ann", "secret words")


async def die(engine, *ids: str) -> None:
    await engine.enqueue([job(name) for name in ids])
    jobs = (await engine.claim(queues=["default"], worker="w", limit=9)).jobs
    await engine.settle([dead(one, REFUSED) for one in jobs])


async def live(engine) -> None:
    await die(engine, "a")
    [group] = await engine.groups()
    await engine.set_group(group.id, GroupChange(GroupVerb.FIX, "secret release"), WHO)
    await die(engine, "b", "c")


@pytest.mark.parametrize("compacted", [False, True])
async def test_a_life_survives_a_crash_with_and_without_a_snapshot(compacted):
    disk = SimDisk()
    engine = await opened(disk)
    await live(engine)
    before = await engine.groups()
    if compacted:
        await engine.compact()
    found = disk.crash()
    reader = await open_readonly(found)
    [seen] = await reader.groups()
    assert (seen.life, seen.count) == (before[0].life, 3)
    again = await opened(found)
    [group] = await again.groups()
    assert group.life == before[0].life
    assert group.life is not None
    assert (group.life.total, group.status) == (3, 404)
    await die(again, "d")
    [group] = await again.groups()
    assert group.life is not None
    assert group.life.total == 4
    await again.close()
    assert verify(found).problems == []
    await engine.close()


async def test_a_life_goes_round_in_dumps_and_a_redacted_one_has_nothing_people_wrote():
    disk = SimDisk()
    engine = await opened(disk)
    await live(engine)
    file = io.BytesIO()
    await write_dump(file, engine.dump())
    memory = MemoryEngine()
    memory.load(record for batch in read_dump(file) for record in batch)
    again = io.BytesIO()
    await write_dump(again, memory.dump())
    target = SimDisk()
    restore(target, read_dump(again))
    loaded = await opened(target)
    assert [one.life for one in await loaded.groups()] == [
        one.life for one in await engine.groups()
    ]
    shown = io.BytesIO()
    await write_dump(shown, redacted(engine.dump()))
    records = [record for batch in read_dump(shown) for record in batch]
    assert "DumpedGroup" in {type(record).__name__ for record in records}
    assert not [one for one in records if "secret" in repr(one) or "no such user" in repr(one)]
    await loaded.close()
    await engine.close()


async def test_control_without_counting_deaths_a_group_would_not_come_back(monkeypatch):
    monkeypatch.setattr("holdfast.engines.memory.state.count_death", lambda _lives, _job: None)
    engine = MemoryEngine()
    await live(engine)
    await engine.operate(PurgeJobs(), named("a", "b", "c"), WHO)
    [group] = await engine.groups()
    assert group.state is not GroupState.CAME_BACK
