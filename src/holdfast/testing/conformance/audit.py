"""The audit, and the flags and schedules that it covers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from holdfast.model.access import Caller
from holdfast.model.actions import (
    ArchiveJobs,
    CancelJobs,
    ConfirmJobs,
    NoteJobs,
    PurgeJobs,
    ReplayJobs,
    RestoreJobs,
)
from holdfast.model.audit import (
    Attribution,
    AuditEntry,
    AuditHead,
    AuditRecord,
    follows,
    head_of,
)
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import AccessDenied, HoldfastError, InvalidInput
from holdfast.model.job import Edit
from holdfast.model.policy import QueuePolicy

from .fixture import OPERATION, EngineFixture, Suite, named, on_engine, wanted

ENTRY = AuditEntry("replay", "job", "a", "ann", '{"state":["dead","pending"]}', "it is back", "x")
NIGHTLY = ScheduleState("0 3 * * *", "Europe/Paris", "report", "default")

_POLICY: dict[str, object] = {"before": {"paused": False}, "after": {"paused": True}}
FACTS: dict[str, dict[str, object]] = {
    "replay": {"count": 1, "ids": ["dead"]},
    "archive": {"count": 1, "ids": ["dead"]},
    "restore": {"count": 1, "ids": ["aside"]},
    "cancel": {"count": 1, "ids": ["open"]},
    "purge": {"count": 1, "ids": ["dead"]},
    "confirm": {"count": 1, "ids": ["held"]},
    "note": {"count": 1, "ids": ["dead"]},
    "edit": {
        "count": 1,
        "ids": ["open"],
        "before": {"priority": 0},
        "after": {"priority": 5},
        "payload": [],
    },
    "set_policy": _POLICY,
    "set_flag": {"before": {"on": None}, "after": {"on": True}},
    "set_schedule": {
        "before": None,
        "after": {field: getattr(NIGHTLY, field) for field in ScheduleState.__struct_fields__},
    },
}
"""What the engine adds to the entry of each operation."""

Operate = Callable[[EngineFixture, Attribution], Awaitable[object]]
OPERATIONS: dict[str, Operate] = {
    "replay": lambda fixture, by: fixture.engine.operate(ReplayJobs(), named("dead"), by),
    "archive": lambda fixture, by: fixture.engine.operate(ArchiveJobs(), named("dead"), by),
    "restore": lambda fixture, by: fixture.engine.operate(RestoreJobs(), named("aside"), by),
    "cancel": lambda fixture, by: fixture.engine.operate(CancelJobs(), named("open"), by),
    "purge": lambda fixture, by: fixture.engine.operate(PurgeJobs(), named("dead"), by),
    "confirm": lambda fixture, by: fixture.engine.operate(ConfirmJobs(), named("held"), by),
    "note": lambda fixture, by: fixture.engine.operate(NoteJobs("known"), named("dead"), by),
    "edit": lambda fixture, by: _edit(fixture, by, version=1),
    "set_policy": lambda fixture, by: fixture.engine.set_policy("q", QueuePolicy(paused=True), by),
    "set_flag": lambda fixture, by: fixture.engine.set_flag("f", by, on=True),
    "set_schedule": lambda fixture, by: fixture.engine.set_schedule("s", NIGHTLY, by),
}
FAILING: dict[str, Operate] = {
    "replay": lambda fixture, by: fixture.engine.operate(ReplayJobs(), named("dead", "open"), by),
    "archive": lambda fixture, by: fixture.engine.operate(
        ArchiveJobs(), named("dead", "nobody"), by
    ),
    "restore": lambda fixture, by: fixture.engine.operate(RestoreJobs(), named("dead"), by),
    "cancel": lambda fixture, by: fixture.engine.operate(CancelJobs(), named("open", "dead"), by),
    "purge": lambda fixture, by: fixture.engine.operate(PurgeJobs(), named("dead", "open"), by),
    "confirm": lambda fixture, by: fixture.engine.operate(ConfirmJobs(), named("open"), by),
    "note": lambda fixture, by: fixture.engine.operate(NoteJobs("known"), named("nobody"), by),
    "edit": lambda fixture, by: _edit(fixture, by, version=9),
    "set_policy": lambda fixture, by: fixture.engine.set_policy(
        "q", QueuePolicy(max_in_flight=0), by
    ),
    "set_flag": lambda fixture, by: fixture.engine.set_flag("", by, on=True),
    "set_schedule": lambda fixture, by: fixture.engine.set_schedule(
        "s", NIGHTLY, by, caller=Caller("acme")
    ),
}


class AuditRules(Suite):
    """Every operation has an actor and a reason; its audit entries are committed with it."""

    @pytest.mark.parametrize("verb", OPERATIONS)
    @on_engine
    async def test_every_operation_needs_an_actor_and_a_reason(
        self, fixture: EngineFixture, verb: str
    ) -> None:
        before = await _one_of_each(fixture)
        for by, why, field in (
            ("", "because", "by"),
            ("ann", "", "why"),
            ("ann", "  ", "why"),
            ("x" * 201, "because", "by"),
            ("ann", "x" * 4_001, "why"),
        ):
            with pytest.raises(InvalidInput) as refused:
                await OPERATIONS[verb](fixture, Attribution(by, why))
            assert refused.value.field == field
        with pytest.raises(InvalidInput) as refused:
            await OPERATIONS[verb](fixture, ("ann", "because"))  # type: ignore[arg-type]
        assert refused.value.field == "operation"
        assert await _seen(fixture) == before

    @pytest.mark.parametrize("verb", OPERATIONS)
    @on_engine
    async def test_the_audit_entry_is_committed_with_the_operation(
        self, fixture: EngineFixture, verb: str
    ) -> None:
        before = await _one_of_each(fixture)
        fixture.clock.advance(5)
        await OPERATIONS[verb](fixture, Attribution("ann", "because", (ENTRY,)))
        [record] = await fixture.engine.audited()
        assert (record.number, record.at_us) == (1, fixture.clock.now_us())
        assert json.loads(record.entry.changes) == {**json.loads(ENTRY.changes), **FACTS[verb]}
        assert replace(record.entry, changes=ENTRY.changes) == ENTRY
        assert follows(AuditHead(), record)
        assert verb == "note" or await _seen(fixture) != before

    @pytest.mark.parametrize("verb", FAILING)
    @on_engine
    async def test_an_operation_that_fails_changes_nothing_and_leaves_no_entry(
        self, fixture: EngineFixture, verb: str
    ) -> None:
        before = await _one_of_each(fixture)
        with pytest.raises(HoldfastError):
            await FAILING[verb](fixture, Attribution("ann", "because", (ENTRY,)))
        assert await fixture.engine.audited() == []
        assert await _seen(fixture) == before

    @on_engine
    async def test_entries_are_numbered_and_chained(self, fixture: EngineFixture) -> None:
        await fixture.put("a", "b")
        for name in ("a", "b"):
            fixture.clock.advance(1)
            entries = (ENTRY, AuditEntry("cancel", "job", name, "ann"))
            await fixture.engine.operate(
                CancelJobs(), named(name), Attribution("ann", "because", entries)
            )
        head = await fixture.engine.audit([AuditEntry("login", "console", "", "eve")])
        records = await fixture.engine.audited()
        assert [record.number for record in records] == [1, 2, 3, 4, 5]
        assert [record.entry.action for record in records] == [
            *("replay", "cancel", "replay", "cancel", "login")
        ]
        assert _chained(records) == head == head_of(records[-1])

    @on_engine
    async def test_the_audit_is_read_in_pages(self, fixture: EngineFixture) -> None:
        entries = [AuditEntry("look", "job", str(number), "ann") for number in range(7)]
        await fixture.engine.audit(entries)
        pages = [await fixture.engine.audited(after=after, limit=3) for after in (0, 3, 6, 7, 99)]
        numbers = [[record.number for record in page] for page in pages]
        assert numbers == [[1, 2, 3], [4, 5, 6], [7], [], []]
        for after, limit, field in ((-1, 3, "after"), (0, 0, "limit"), (0, 1_001, "limit")):
            with pytest.raises(InvalidInput) as refused:
                await fixture.engine.audited(after=after, limit=limit)
            assert refused.value.field == field

    @on_engine
    async def test_an_empty_list_of_entries_returns_the_head_of_the_audit(
        self, fixture: EngineFixture
    ) -> None:
        assert await fixture.engine.audit([]) == AuditHead()
        head = await fixture.engine.audit([ENTRY])
        assert await fixture.engine.audit([]) == head

    @pytest.mark.parametrize(
        ("entry", "field"),
        [
            (AuditEntry("", "job", "a", "ann"), "action"),
            (AuditEntry("cancel", "", "a", "ann"), "resource_type"),
            (AuditEntry("cancel", "job", "a", ""), "user_id"),
            (AuditEntry("cancel", "job", "a", "ann", "[]"), "changes"),
            (AuditEntry("cancel", "job", "a", "ann", "{"), "changes"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    @on_engine
    async def test_a_bad_entry_is_refused_with_its_operation(
        self, fixture: EngineFixture, entry: AuditEntry, field: str
    ) -> None:
        before = await _one_of_each(fixture)
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.audit([ENTRY, entry])
        assert refused.value.field == field
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.operate(
                CancelJobs(), named("open"), Attribution("ann", "because", (entry,))
            )
        assert refused.value.field == field
        assert await fixture.engine.audited() == []
        assert await _seen(fixture) == before

    @on_engine
    async def test_a_limited_caller_writes_no_entries_by_itself(
        self, fixture: EngineFixture
    ) -> None:
        with pytest.raises(AccessDenied):
            await fixture.engine.audit([ENTRY], caller=Caller("acme"))
        assert await fixture.engine.audited() == []


class FlagAndScheduleRules(Suite):
    """Flags and schedules."""

    @on_engine
    async def test_a_flag_is_set_and_removed(self, fixture: EngineFixture) -> None:
        assert await fixture.engine.flags() == {}
        await fixture.engine.set_flag("auto_replay", OPERATION, on=True)
        await fixture.engine.set_flag("fast", OPERATION, on=False)
        assert await fixture.engine.flags() == {"auto_replay": True, "fast": False}
        await fixture.engine.set_flag("auto_replay", OPERATION, on=None)
        assert await fixture.engine.flags() == {"fast": False}
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.set_flag("fast", OPERATION, on=1)  # type: ignore[arg-type]
        assert refused.value.field == "on"

    @on_engine
    async def test_a_schedule_is_stored_changed_and_removed(self, fixture: EngineFixture) -> None:
        assert await fixture.engine.schedules() == {}
        await fixture.engine.set_schedule("nightly", NIGHTLY, OPERATION)
        assert await fixture.engine.schedules() == {"nightly": NIGHTLY}
        paused = ScheduleState("0 4 * * *", "UTC", "report", "slow", paused=True)
        await fixture.engine.set_schedule("nightly", paused, OPERATION)
        assert await fixture.engine.schedules() == {"nightly": paused}
        await fixture.engine.set_schedule("nightly", None, OPERATION)
        assert await fixture.engine.schedules() == {}
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.set_schedule("nightly", "daily", OPERATION)  # type: ignore[arg-type]
        assert refused.value.field == "schedule"

    @on_engine
    async def test_a_limited_caller_may_not_set_flags_or_schedules(
        self, fixture: EngineFixture
    ) -> None:
        caller = Caller("acme")
        with pytest.raises(AccessDenied):
            await fixture.engine.set_flag("f", OPERATION, on=True, caller=caller)
        with pytest.raises(AccessDenied):
            await fixture.engine.set_schedule("s", NIGHTLY, OPERATION, caller=caller)
        assert (await fixture.engine.flags(), await fixture.engine.schedules()) == ({}, {})


async def _edit(fixture: EngineFixture, by: Attribution, version: int) -> object:
    return await fixture.engine.edit(
        await fixture.job("open"), Edit(priority=5), by, version=version
    )


async def _one_of_each(fixture: EngineFixture) -> object:
    await fixture.put_dead("dead", "aside")
    await fixture.engine.operate(ArchiveJobs(), named("aside"), OPERATION)
    await fixture.put("open")
    await fixture.put("held", hold=True)
    return await _seen(fixture)


async def _seen(fixture: EngineFixture) -> object:
    engine = fixture.engine
    governing = await engine.policies(), await engine.flags(), await engine.schedules()
    return (await engine.find(wanted())).jobs, governing


def _chained(records: list[AuditRecord]) -> AuditHead:
    head = AuditHead()
    for record in records:
        assert follows(head, record)
        head = head_of(record)
    return head
