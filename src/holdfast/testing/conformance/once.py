"""Records that are committed with a change, so that it is made once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.engines.protocol.messages import JobName
from holdfast.model.actions import CancelJobs, NoteJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import ChangedMeanwhile, DuplicateId, InvalidInput
from holdfast.model.event import NewEvent
from holdfast.model.job import MICROSECONDS, Edit
from holdfast.model.policy import QueuePolicy
from holdfast.model.record import Record
from holdfast.model.search import Filter

from .fixture import EngineFixture, Suite, new_job, on_engine

JOB = JobName("default", "a")
EVENT = NewEvent(event_type="book.lent", entity_type="book", entity_id="1", actor_id="ann")
CHANGES: dict[str, Callable[[Engine, Attribution], Awaitable[object]]] = {
    "operate": lambda engine, who: engine.operate(NoteJobs("seen"), Filter(ids=("a",)), who),
    "edit": lambda engine, who: engine.edit(JOB, Edit(priority=1), who),
    "set_policy": lambda engine, who: engine.set_policy("default", QueuePolicy(paused=True), who),
    "set_flag": lambda engine, who: engine.set_flag("f", who, on=True),
    "set_outage": lambda engine, who: engine.set_outage("mail", who, on=True),
    "set_record": lambda engine, who: engine.set_record(
        "key", "k", Record("key", "k", "{}"), who, expected=None
    ),
}


class CommittedOnceRules(Suite):
    """A record is committed with a change, or neither is."""

    @on_engine
    async def test_jobs_and_their_record_are_committed_together(
        self, fixture: EngineFixture
    ) -> None:
        engine, record = fixture.engine, _record(fixture)
        await engine.enqueue([new_job(id="a")], once=record)
        assert await engine.records("once", ["o1"]) == [record]
        for _again in range(2):
            with pytest.raises(ChangedMeanwhile):
                await engine.enqueue([new_job(id="b")], once=replace(record, value='{"n":2}'))
        assert await engine.get(["b"]) == [None]
        with pytest.raises(DuplicateId):
            await engine.enqueue([new_job(id="a")], once=_record(fixture, "o2"))
        assert await engine.records("once") == [record]

    @on_engine
    async def test_without_a_new_job_there_is_no_record(self, fixture: EngineFixture) -> None:
        engine = fixture.engine
        await engine.enqueue([new_job(id="a", unique="u")])
        [receipt] = await engine.enqueue([new_job(id="b", unique="u")], once=_record(fixture))
        assert receipt.id == "a"
        await engine.enqueue([new_job(id="a")], on_duplicate="skip", once=_record(fixture))
        assert await engine.records("once") == []

    @on_engine
    async def test_events_and_their_record_are_committed_together(
        self, fixture: EngineFixture
    ) -> None:
        engine, record = fixture.engine, _record(fixture)
        await engine.append([EVENT], once=record)
        with pytest.raises(ChangedMeanwhile):
            await engine.append([EVENT], once=record)
        assert await engine.records("once") == [record]
        assert (await engine.find_events()).events[1:] == []

    @pytest.mark.parametrize("change", list(CHANGES))
    @on_engine
    async def test_an_action_and_its_record_are_committed_together(
        self, fixture: EngineFixture, change: str
    ) -> None:
        engine = fixture.engine
        await fixture.put("a")
        entry = AuditEntry(change, "job", "a", "ann")
        who = Attribution("ann", "a test", (entry,), _record(fixture))
        await CHANGES[change](engine, who)
        assert await engine.records("once") == [who.once]
        with pytest.raises((ChangedMeanwhile, InvalidInput)):  # the state may refuse it first
            await CHANGES[change](engine, who)
        assert len(await engine.audited()) == 1

    @on_engine
    async def test_an_action_on_nothing_leaves_no_record(self, fixture: EngineFixture) -> None:
        engine = fixture.engine
        await fixture.put("a")
        who = Attribution("ann", "a test", (), _record(fixture))
        await engine.operate(CancelJobs(), Filter(queues=("other",)), who)
        assert await engine.records("once") == []

    @on_engine
    async def test_an_expired_record_makes_room_for_the_next(self, fixture: EngineFixture) -> None:
        engine = fixture.engine
        await engine.enqueue([new_job(id="a")], once=_record(fixture))
        fixture.clock.advance(61)
        again = _record(fixture)
        await engine.enqueue([new_job(id="b")], once=again)
        assert await engine.records("once") == [again]

    @on_engine
    async def test_a_record_that_does_not_expire_is_refused(self, fixture: EngineFixture) -> None:
        engine = fixture.engine
        wrong = [Record("once", "o1", "{}"), Record("once", "", "{}", 1)]
        for record in wrong:
            with pytest.raises(InvalidInput):
                await engine.enqueue([new_job(id="a")], once=record)
            with pytest.raises(InvalidInput):
                await engine.append([EVENT], once=record)
            with pytest.raises(InvalidInput):
                await engine.set_flag("f", Attribution("ann", "why", (), record), on=True)
        assert await engine.get(["a"]) == [None]


def _record(fixture: EngineFixture, name: str = "o1") -> Record:
    return Record("once", name, "{}", fixture.clock.now_us() + 60 * MICROSECONDS)
