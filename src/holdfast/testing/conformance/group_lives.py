"""What people do with groups of failures: stored, derived, and kept when the letters are gone."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.model.access import Caller
from holdfast.model.actions import PurgeJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import AccessDenied, InvalidInput, UnknownGroup
from holdfast.model.group_life import GroupChange, GroupState, GroupVerb
from holdfast.model.search import FailureGroup, Filter

from .fixture import OPERATION, WRONG, EngineFixture, Suite, named, on_engine

ACKNOWLEDGE = GroupChange(GroupVerb.ACKNOWLEDGE)
FIX = GroupChange(GroupVerb.FIX, "release 7")
DAY_SECONDS = 24 * 3_600


async def change(fixture: EngineFixture, one: GroupChange) -> FailureGroup:
    """Change the only group, and return it."""
    found = await fixture.engine.set_group((await fixture.group()).id, one, OPERATION)
    assert found is not None
    assert found == await fixture.group()
    return found


class GroupLifeRules(Suite):
    """Open, acknowledged, fixed, quiet or back; owner, notes and mutes."""

    @on_engine
    async def test_a_group_is_open_acknowledged_fixed_then_quiet(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a")
        group = await fixture.group()
        assert (group.state, group.life) == (GroupState.OPEN, None)
        group = await change(fixture, ACKNOWLEDGE)
        assert group.state is GroupState.ACKNOWLEDGED
        fixture.clock.advance(60)
        group = await change(fixture, FIX)
        assert group.state is GroupState.FIXED
        assert group.life is not None
        assert (group.life.fixed_in, group.life.total) == ("release 7", 1)
        assert [(act.by, act.verb, act.text) for act in group.life.acts] == [
            (OPERATION.by, GroupVerb.ACKNOWLEDGE, OPERATION.why),
            (OPERATION.by, GroupVerb.FIX, OPERATION.why),
        ]
        fixture.clock.advance(DAY_SECONDS)
        assert (await fixture.group()).state is GroupState.QUIET
        group = await change(fixture, GroupChange(GroupVerb.REOPEN))
        assert group.state is GroupState.OPEN

    @on_engine
    async def test_a_death_after_the_fix_brings_it_back_even_if_the_letter_is_gone(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a")
        await change(fixture, FIX)
        fixture.clock.advance(10)
        await fixture.put_dead("b")
        came_back_us = fixture.clock.now_us()
        assert (await fixture.group()).state is GroupState.CAME_BACK
        await fixture.engine.operate(PurgeJobs(), named("a", "b"), OPERATION)
        group = await fixture.group()
        assert (group.state, group.count) == (GroupState.CAME_BACK, 0)
        assert group.life is not None
        assert (group.life.total, group.life.last_at_us) == (2, came_back_us)
        assert group.last_at_us == came_back_us
        group = await change(fixture, ACKNOWLEDGE)
        assert group.state is GroupState.ACKNOWLEDGED

    @on_engine
    async def test_owner_notes_and_mute_outlive_the_letters(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a")
        await change(fixture, GroupChange(GroupVerb.ASSIGN, "ann"))
        until_us = fixture.clock.now_us() + 60_000_000
        await change(fixture, GroupChange(GroupVerb.MUTE, until_us=until_us))
        await change(fixture, GroupChange(GroupVerb.NOTE))
        await fixture.engine.operate(PurgeJobs(), named("a"), OPERATION)
        group = await fixture.group()
        assert group.count == 0
        assert group.life is not None
        assert (group.life.owner, group.life.muted_until_us) == ("ann", until_us)
        assert [act.verb for act in group.life.acts] == ["assign", "mute", "note"]
        group = await change(fixture, GroupChange(GroupVerb.UNMUTE))
        assert group.life is not None
        assert group.life.muted_until_us == 0

    @on_engine
    async def test_a_touched_group_goes_when_forgotten_or_after_90_days(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a")
        await fixture.put_dead("b", failure=WRONG)
        for group in await fixture.engine.groups():
            await fixture.engine.set_group(group.id, ACKNOWLEDGE, OPERATION)
        await fixture.engine.operate(PurgeJobs(), named("a", "b"), OPERATION)
        first, second = await fixture.engine.groups()
        forget = GroupChange(GroupVerb.FORGET)
        assert await fixture.engine.set_group(first.id, forget, OPERATION) is None
        assert [one.id for one in await fixture.engine.groups()] == [second.id]
        fixture.clock.advance(89 * DAY_SECONDS)
        assert [one.id for one in await fixture.engine.groups()] == [second.id]
        fixture.clock.advance(DAY_SECONDS)
        assert await fixture.engine.groups() == []
        # The next change to any group removes it from the store.
        await fixture.put_dead("c", queue="mail")
        await change(fixture, ACKNOWLEDGE)
        with pytest.raises(UnknownGroup):
            await fixture.engine.set_group(second.id, ACKNOWLEDGE, OPERATION)

    @on_engine
    async def test_a_filter_finds_touched_groups_without_letters(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a", queue="mail")
        await change(fixture, ACKNOWLEDGE)
        await fixture.engine.operate(PurgeJobs(), named("a"), OPERATION)
        assert len(await fixture.engine.groups(Filter(queues=("mail",), tasks=("t",)))) == 1
        assert await fixture.engine.groups(Filter(queues=("other",))) == []
        assert await fixture.engine.groups(Filter(statuses=(404,))) == []
        assert await fixture.engine.groups(Filter(tenant="default")) == []

    @on_engine
    async def test_an_unknown_group_or_a_wrong_change_changes_nothing(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a")
        group = await fixture.group()
        with pytest.raises(UnknownGroup, match="g-0000000000"):
            await fixture.engine.set_group("g-0000000000", ACKNOWLEDGE, OPERATION)
        for wrong in (
            GroupChange(GroupVerb.FIX),
            GroupChange(GroupVerb.MUTE, until_us=1),
            GroupChange(GroupVerb.ASSIGN, "x" * 201),
            GroupChange("sing"),  # type: ignore[arg-type]
        ):
            with pytest.raises(InvalidInput):
                await fixture.engine.set_group(group.id, wrong, OPERATION)
        with pytest.raises(InvalidInput):
            await fixture.engine.set_group(group.id, ACKNOWLEDGE, Attribution("ann", ""))
        assert await fixture.group() == group

    @on_engine
    async def test_a_limited_caller_sees_its_own_counts_and_may_not_act(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a", tenant="acme")
        await fixture.put_dead("b", "c", tenant="other")
        await change(fixture, FIX)
        fixture.clock.advance(1)
        await fixture.put_dead("d", tenant="other")
        [own] = await fixture.engine.groups(caller=Caller("acme"))
        assert (own.count, own.tenants, own.life) == (1, 1, None)
        # By what died within its reach: others' deaths are none of its business.
        assert own.state is GroupState.FIXED
        [theirs] = await fixture.engine.groups(caller=Caller("other"))
        assert (theirs.count, theirs.state) == (3, GroupState.CAME_BACK)
        assert await fixture.engine.groups(caller=Caller("third")) == []
        with pytest.raises(AccessDenied):
            await fixture.engine.set_group(own.id, ACKNOWLEDGE, OPERATION, caller=Caller("acme"))
        assert (await fixture.group()).state is GroupState.CAME_BACK

    @on_engine
    async def test_the_audit_has_what_was_stored_before_and_after(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a")
        group_id = (await fixture.group()).id
        entry = AuditEntry("group.assign", "group", group_id, "ann", "{}", "she knows it")
        for owner in ("ann", "bob"):
            assign = GroupChange(GroupVerb.ASSIGN, owner)
            who = Attribution("ann", "she knows it", (entry,))
            await fixture.engine.set_group(group_id, assign, who)
        records = await fixture.engine.audited()
        found = [
            msgspec.json.decode(one.entry.changes, type=dict[str, dict[str, object] | None])
            for one in records
        ]
        owners = [(one["before"], one["after"]) for one in found]
        assert owners[0][0] is None
        assert [after and after["owner"] for _before, after in owners] == ["ann", "bob"]
        assert owners[1][0] is not None
        assert owners[1][0]["owner"] == "ann"
