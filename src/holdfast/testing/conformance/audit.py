"""Who and why: operations, what governs work, and the audit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

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

Operate = Callable[[EngineFixture, Attribution], Awaitable[object]]
OPERATIONS: dict[str, Operate] = {
    "replay": lambda desk, by: desk.engine.operate(ReplayJobs(), named("dead"), by),
    "archive": lambda desk, by: desk.engine.operate(ArchiveJobs(), named("dead"), by),
    "restore": lambda desk, by: desk.engine.operate(RestoreJobs(), named("aside"), by),
    "cancel": lambda desk, by: desk.engine.operate(CancelJobs(), named("open"), by),
    "purge": lambda desk, by: desk.engine.operate(PurgeJobs(), named("dead"), by),
    "confirm": lambda desk, by: desk.engine.operate(ConfirmJobs(), named("held"), by),
    "note": lambda desk, by: desk.engine.operate(NoteJobs("known"), named("dead"), by),
    "edit": lambda desk, by: _edit(desk, by, version=1),
    "set_policy": lambda desk, by: desk.engine.set_policy("q", QueuePolicy(paused=True), by),
    "set_flag": lambda desk, by: desk.engine.set_flag("f", by, on=True),
    "set_schedule": lambda desk, by: desk.engine.set_schedule("s", NIGHTLY, by),
}
FAILING: dict[str, Operate] = {
    "replay": lambda desk, by: desk.engine.operate(ReplayJobs(), named("dead", "open"), by),
    "archive": lambda desk, by: desk.engine.operate(ArchiveJobs(), named("dead", "nobody"), by),
    "restore": lambda desk, by: desk.engine.operate(RestoreJobs(), named("dead"), by),
    "cancel": lambda desk, by: desk.engine.operate(CancelJobs(), named("open", "dead"), by),
    "purge": lambda desk, by: desk.engine.operate(PurgeJobs(), named("dead", "open"), by),
    "confirm": lambda desk, by: desk.engine.operate(ConfirmJobs(), named("open"), by),
    "note": lambda desk, by: desk.engine.operate(NoteJobs("known"), named("nobody"), by),
    "edit": lambda desk, by: _edit(desk, by, version=9),
    "set_policy": lambda desk, by: desk.engine.set_policy("q", QueuePolicy(max_in_flight=0), by),
    "set_flag": lambda desk, by: desk.engine.set_flag("", by, on=True),
    "set_schedule": lambda desk, by: desk.engine.set_schedule(
        "s", NIGHTLY, by, caller=Caller("acme")
    ),
}


class AuditRules(Suite):
    """Every operation says who and why, and its audit entries are committed with it."""

    @pytest.mark.parametrize("verb", OPERATIONS)
    @on_engine
    async def test_every_operation_needs_who_and_why(self, desk: EngineFixture, verb: str) -> None:
        before = await _one_of_each(desk)
        for by, why, field in (
            ("", "because", "by"),
            ("ann", "", "why"),
            ("ann", "  ", "why"),
            ("x" * 201, "because", "by"),
            ("ann", "x" * 4_001, "why"),
        ):
            with pytest.raises(InvalidInput) as refused:
                await OPERATIONS[verb](desk, Attribution(by, why))
            assert refused.value.field == field
        with pytest.raises(InvalidInput) as refused:
            await OPERATIONS[verb](desk, ("ann", "because"))  # type: ignore[arg-type]
        assert refused.value.field == "operation"
        assert await _seen(desk) == before

    @pytest.mark.parametrize("verb", OPERATIONS)
    @on_engine
    async def test_the_audit_entry_is_committed_with_the_operation(
        self, desk: EngineFixture, verb: str
    ) -> None:
        before = await _one_of_each(desk)
        desk.clock.advance(5)
        await OPERATIONS[verb](desk, Attribution("ann", "because", (ENTRY,)))
        [record] = await desk.engine.audited()
        assert (record.number, record.at_us) == (1, desk.clock.now_us())
        assert record.entry == ENTRY
        assert follows(AuditHead(), record)
        assert verb == "note" or await _seen(desk) != before

    @pytest.mark.parametrize("verb", FAILING)
    @on_engine
    async def test_an_operation_that_fails_changes_nothing_and_leaves_no_entry(
        self, desk: EngineFixture, verb: str
    ) -> None:
        before = await _one_of_each(desk)
        with pytest.raises(HoldfastError):
            await FAILING[verb](desk, Attribution("ann", "because", (ENTRY,)))
        assert await desk.engine.audited() == []
        assert await _seen(desk) == before

    @on_engine
    async def test_entries_are_numbered_and_chained(self, desk: EngineFixture) -> None:
        await desk.put("a", "b")
        for name in ("a", "b"):
            desk.clock.advance(1)
            entries = (ENTRY, AuditEntry("cancel", "job", name, "ann"))
            await desk.engine.operate(
                CancelJobs(), named(name), Attribution("ann", "because", entries)
            )
        head = await desk.engine.audit([AuditEntry("login", "console", "", "eve")])
        records = await desk.engine.audited()
        assert [record.number for record in records] == [1, 2, 3, 4, 5]
        assert [record.entry.action for record in records] == [
            *("replay", "cancel", "replay", "cancel", "login")
        ]
        assert _chained(records) == head == head_of(records[-1])

    @on_engine
    async def test_the_audit_is_read_in_pages(self, desk: EngineFixture) -> None:
        entries = [AuditEntry("look", "job", str(number), "ann") for number in range(7)]
        await desk.engine.audit(entries)
        pages = [await desk.engine.audited(after=after, limit=3) for after in (0, 3, 6, 7, 99)]
        numbers = [[record.number for record in page] for page in pages]
        assert numbers == [[1, 2, 3], [4, 5, 6], [7], [], []]
        for after, limit, field in ((-1, 3, "after"), (0, 0, "limit"), (0, 1_001, "limit")):
            with pytest.raises(InvalidInput) as refused:
                await desk.engine.audited(after=after, limit=limit)
            assert refused.value.field == field

    @on_engine
    async def test_an_empty_list_of_entries_tells_where_the_audit_ends(
        self, desk: EngineFixture
    ) -> None:
        assert await desk.engine.audit([]) == AuditHead()
        head = await desk.engine.audit([ENTRY])
        assert await desk.engine.audit([]) == head

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
        self, desk: EngineFixture, entry: AuditEntry, field: str
    ) -> None:
        before = await _one_of_each(desk)
        with pytest.raises(InvalidInput) as refused:
            await desk.engine.audit([ENTRY, entry])
        assert refused.value.field == field
        with pytest.raises(InvalidInput) as refused:
            await desk.engine.operate(
                CancelJobs(), named("open"), Attribution("ann", "because", (entry,))
            )
        assert refused.value.field == field
        assert await desk.engine.audited() == []
        assert await _seen(desk) == before

    @on_engine
    async def test_a_limited_caller_writes_no_entries_by_itself(self, desk: EngineFixture) -> None:
        with pytest.raises(AccessDenied):
            await desk.engine.audit([ENTRY], caller=Caller("acme"))
        assert await desk.engine.audited() == []


class GoverningRules(Suite):
    """Flags and schedules."""

    @on_engine
    async def test_a_flag_is_switched_and_taken_away(self, desk: EngineFixture) -> None:
        assert await desk.engine.flags() == {}
        await desk.engine.set_flag("auto_replay", OPERATION, on=True)
        await desk.engine.set_flag("fast", OPERATION, on=False)
        assert await desk.engine.flags() == {"auto_replay": True, "fast": False}
        await desk.engine.set_flag("auto_replay", OPERATION, on=None)
        assert await desk.engine.flags() == {"fast": False}
        with pytest.raises(InvalidInput) as refused:
            await desk.engine.set_flag("fast", OPERATION, on=1)  # type: ignore[arg-type]
        assert refused.value.field == "on"

    @on_engine
    async def test_a_schedule_is_known_changed_and_taken_away(self, desk: EngineFixture) -> None:
        assert await desk.engine.schedules() == {}
        await desk.engine.set_schedule("nightly", NIGHTLY, OPERATION)
        assert await desk.engine.schedules() == {"nightly": NIGHTLY}
        paused = ScheduleState("0 4 * * *", "UTC", "report", "slow", paused=True)
        await desk.engine.set_schedule("nightly", paused, OPERATION)
        assert await desk.engine.schedules() == {"nightly": paused}
        await desk.engine.set_schedule("nightly", None, OPERATION)
        assert await desk.engine.schedules() == {}
        with pytest.raises(InvalidInput) as refused:
            await desk.engine.set_schedule("nightly", "daily", OPERATION)  # type: ignore[arg-type]
        assert refused.value.field == "schedule"

    @on_engine
    async def test_a_limited_caller_governs_nothing(self, desk: EngineFixture) -> None:
        caller = Caller("acme")
        with pytest.raises(AccessDenied):
            await desk.engine.set_flag("f", OPERATION, on=True, caller=caller)
        with pytest.raises(AccessDenied):
            await desk.engine.set_schedule("s", NIGHTLY, OPERATION, caller=caller)
        assert (await desk.engine.flags(), await desk.engine.schedules()) == ({}, {})


async def _edit(desk: EngineFixture, by: Attribution, version: int) -> object:
    return await desk.engine.edit(await desk.job("open"), Edit(priority=5), by, version=version)


async def _one_of_each(desk: EngineFixture) -> object:
    await desk.put_dead("dead", "aside")
    await desk.engine.operate(ArchiveJobs(), named("aside"), OPERATION)
    await desk.put("open")
    await desk.put("held", hold=True)
    return await _seen(desk)


async def _seen(desk: EngineFixture) -> object:
    engine = desk.engine
    governing = await engine.policies(), await engine.flags(), await engine.schedules()
    return (await engine.find(wanted())).jobs, governing


def _chained(records: list[AuditRecord]) -> AuditHead:
    head = AuditHead()
    for record in records:
        assert follows(head, record)
        head = head_of(record)
    return head
