"""The life of a group: what people do, and what follows from it and the last death."""

import pytest
from msgspec.structs import replace

from holdfast.model.errors import InvalidInput
from holdfast.model.failure import FailureClass
from holdfast.model.group_life import (
    FORGET_AFTER_US,
    MAX_ACTS,
    QUIET_AFTER_US,
    GroupChange,
    GroupLife,
    GroupState,
    GroupVerb,
    change_life,
    is_over,
    state_of,
    with_deaths,
)

NOW_US = 10**15
LIFE = GroupLife(
    queue="mail",
    task="send",
    error_reason="upstream_4xx",
    status=404,
    fingerprint="no such user",
    failure_class=FailureClass.DETERMINISTIC,
    first_at_us=NOW_US - 9,
    last_at_us=NOW_US - 5,
    total=3,
)


def after(*changes: GroupChange, life: GroupLife = LIFE, now_us: int = NOW_US) -> GroupLife:
    for change in changes:
        changed = change_life(life, change, "ann", "why", now_us)
        assert changed is not None
        life = changed
    return life


ACKNOWLEDGE = GroupChange(GroupVerb.ACKNOWLEDGE)
FIX = GroupChange(GroupVerb.FIX, "v7")


@pytest.mark.parametrize(
    ("life", "died_after_us", "passed_us", "state"),
    [
        (None, 0, 0, GroupState.OPEN),
        (LIFE, 0, 0, GroupState.OPEN),
        (after(GroupChange(GroupVerb.NOTE)), 0, QUIET_AFTER_US, GroupState.OPEN),
        (after(ACKNOWLEDGE), 0, QUIET_AFTER_US - 1, GroupState.ACKNOWLEDGED),
        (after(ACKNOWLEDGE), 0, QUIET_AFTER_US, GroupState.QUIET),
        (after(ACKNOWLEDGE), 1, QUIET_AFTER_US, GroupState.ACKNOWLEDGED),
        (after(ACKNOWLEDGE), 1, QUIET_AFTER_US + 1, GroupState.QUIET),
        (after(FIX), 0, 0, GroupState.FIXED),
        (after(ACKNOWLEDGE, FIX), 0, QUIET_AFTER_US, GroupState.QUIET),
        (after(FIX), 1, 1, GroupState.CAME_BACK),
        (after(FIX), 1, 9 * QUIET_AFTER_US, GroupState.CAME_BACK),
        (after(FIX, ACKNOWLEDGE), 1, 2, GroupState.ACKNOWLEDGED),
        (after(FIX, GroupChange(GroupVerb.REOPEN)), 1, 2, GroupState.OPEN),
    ],
)
def test_a_state_follows_from_the_acts_and_the_last_death(life, died_after_us, passed_us, state):
    assert state_of(life, NOW_US + died_after_us, NOW_US + passed_us) is state


def test_every_act_is_kept_with_who_when_and_why() -> None:
    life = after(ACKNOWLEDGE, GroupChange(GroupVerb.ASSIGN, "bob"), FIX)
    assert [(act.at_us, act.by, act.verb, act.text, act.value) for act in life.acts] == [
        (NOW_US, "ann", "acknowledge", "why", ""),
        (NOW_US, "ann", "assign", "why", "bob"),
        (NOW_US, "ann", "fix", "why", "v7"),
    ]
    assert (life.owner, life.fixed_in) == ("bob", "v7")
    assert len(after(*[GroupChange(GroupVerb.NOTE)] * (MAX_ACTS + 5)).acts) == MAX_ACTS
    assert change_life(life, GroupChange(GroupVerb.FORGET), "ann", "why", NOW_US) is None


def test_a_mute_ends_in_the_future_and_can_be_taken_back() -> None:
    life = after(GroupChange(GroupVerb.MUTE, until_us=NOW_US + 1))
    assert life.muted_until_us == NOW_US + 1
    assert after(GroupChange(GroupVerb.UNMUTE), life=life).muted_until_us == 0
    with pytest.raises(InvalidInput, match="future"):
        after(GroupChange(GroupVerb.MUTE, until_us=NOW_US))


@pytest.mark.parametrize(
    "change",
    [
        GroupChange(GroupVerb.FIX),
        GroupChange(GroupVerb.FIX, "  "),
        GroupChange(GroupVerb.FIX, "x" * 4_001),
        GroupChange(GroupVerb.ASSIGN, "x" * 201),
        GroupChange(GroupVerb.ASSIGN, "half \udcff"),
        GroupChange(GroupVerb.MUTE, until_us=-1),
        GroupChange("sing"),  # type: ignore[arg-type]
        GroupChange(GroupVerb.ASSIGN, 7),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_change_is_refused(change):
    with pytest.raises(InvalidInput):
        change.check()


def test_deaths_are_counted_and_keep_a_group_alive() -> None:
    life = after(ACKNOWLEDGE)
    assert not is_over(life, NOW_US + FORGET_AFTER_US - 1)
    assert is_over(life, NOW_US + FORGET_AFTER_US)
    later = with_deaths(life, 2, NOW_US + 7)
    assert (later.total, later.last_at_us) == (5, NOW_US + 7)
    assert not is_over(later, NOW_US + FORGET_AFTER_US)
    assert with_deaths(later, 1, 1) == replace(later, total=6)
