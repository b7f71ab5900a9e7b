"""What people did about a group of failures: stored, and kept when its dead letters are gone.

Only the acts of people are stored, and when the group was seen. Whether it is quiet or came back
follows from these and the time of its last death.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import MutableMapping
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from .audit import NAME_LIMIT, TEXT_LIMIT, AuditEntry
from .errors import InvalidInput
from .failure import FailureClass
from .fingerprint import FINGERPRINT_VERSION, fingerprint
from .job import MICROSECONDS, Job, Whole, check_size

QUIET_AFTER_US = 24 * 3_600 * MICROSECONDS
"""A group is quiet if nothing died of it for so long since it was acknowledged or fixed."""
FORGET_AFTER_US = 90 * 24 * 3_600 * MICROSECONDS
"""A group without dead letters is forgotten so long after its last act and its last death."""
MAX_ACTS = 100
"""How many acts of a group are kept: the last ones."""


class GroupKey(NamedTuple):
    """What the dead letters of a group have in common."""

    queue: str
    task: str
    error_reason: str
    status: int
    """The HTTP status of the failure; 0 without one."""
    fingerprint: str


def group_key(job: Job) -> GroupKey | None:
    """Return the key of the group of a dead job; None if it has no failure."""
    failure = job.failure
    if failure is None:
        return None
    shape = fingerprint(failure.message)
    return GroupKey(job.queue, job.task, failure.error_reason, failure.status or 0, shape)


@lru_cache(maxsize=4096)
def group_id(key: GroupKey) -> str:
    """Return the id of a group: the same on every engine, and after a restart."""
    text = msgspec.json.encode([FINGERPRINT_VERSION, *key])
    return f"g-{hashlib.sha256(text).hexdigest()[:10]}"


class GroupState(enum.StrEnum):
    """Where a group is in its life."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    """A person knows about it."""
    FIXED = "fixed"
    """A person says that it is fixed."""
    QUIET = "quiet"
    """It was acknowledged or fixed, and nothing died of it since, for a day."""
    CAME_BACK = "came_back"
    """Something died of it after it was fixed."""


class GroupVerb(enum.StrEnum):
    """What a person can do with a group."""

    ACKNOWLEDGE = "acknowledge"
    FIX = "fix"
    REOPEN = "reopen"
    ASSIGN = "assign"
    MUTE = "mute"
    UNMUTE = "unmute"
    NOTE = "note"
    FORGET = "forget"


class GroupChange(msgspec.Struct, frozen=True, array_like=True):
    """A change to a group. Who makes it and why is in its ``Attribution``."""

    verb: GroupVerb
    value: str = ""
    """In what it is fixed, or who owns it now; empty for no owner."""
    until_us: Whole = 0
    """Until when it is muted."""

    def check(self) -> None:
        """Raise ``InvalidInput`` if a field is invalid."""
        if type(self.verb) is not GroupVerb:
            raise InvalidInput("verb", f"{self.verb!r} is not a GroupVerb")
        limit = TEXT_LIMIT if self.verb is GroupVerb.FIX else NAME_LIMIT
        if type(self.value) is not str or len(self.value) > limit:
            raise InvalidInput("value", f"give a text of at most {limit:,} characters")
        try:
            self.value.encode()
        except UnicodeEncodeError:
            raise InvalidInput("value", "it contains an unpaired surrogate") from None
        if self.verb is GroupVerb.FIX and not self.value.strip():
            raise InvalidInput("value", "say in what it is fixed: a version, or what was changed")
        check_size("until_us", self.until_us, 0)


class GroupAct(msgspec.Struct, frozen=True, array_like=True):
    """What a person did with a group, and why."""

    at_us: Whole
    by: str
    verb: GroupVerb
    text: str
    value: str = ""


class GroupLife(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A group that a person touched. New fields go at the end."""

    queue: str
    task: str
    error_reason: str
    status: int | None
    fingerprint: str
    failure_class: FailureClass
    first_at_us: Whole
    last_at_us: Whole
    """When the last of all its jobs died, also of those that are no dead letters any more."""
    total: Whole
    """How many died of it: those that were there when it was touched first, and all since."""
    acknowledged_at_us: Whole = 0
    fixed_at_us: Whole = 0
    fixed_in: str = ""
    owner: str = ""
    muted_until_us: Whole = 0
    acts: tuple[GroupAct, ...] = ()
    """What people did, the last act last."""

    @property
    def key(self) -> GroupKey:
        """The key of the group."""
        return GroupKey(
            self.queue, self.task, self.error_reason, self.status or 0, self.fingerprint
        )


def change_life(
    life: GroupLife, change: GroupChange, by: str, why: str, now_us: int
) -> GroupLife | None:
    """Return the life after this change; None if it is forgotten. Raise ``InvalidInput``."""
    if change.verb is GroupVerb.FORGET:
        return None
    after = life
    if change.verb is GroupVerb.ACKNOWLEDGE:
        after = replace(life, acknowledged_at_us=now_us, fixed_at_us=0, fixed_in="")
    elif change.verb is GroupVerb.FIX:
        after = replace(life, fixed_at_us=now_us, fixed_in=change.value)
    elif change.verb is GroupVerb.REOPEN:
        after = replace(life, acknowledged_at_us=0, fixed_at_us=0, fixed_in="")
    elif change.verb is GroupVerb.ASSIGN:
        after = replace(life, owner=change.value)
    elif change.verb is GroupVerb.MUTE:
        if change.until_us <= now_us:
            raise InvalidInput("until_us", "a group is muted until a time in the future")
        after = replace(life, muted_until_us=change.until_us)
    elif change.verb is GroupVerb.UNMUTE:
        after = replace(life, muted_until_us=0)
    act = GroupAct(now_us, by, change.verb, why, change.value)
    return replace(after, acts=(*life.acts, act)[-MAX_ACTS:])


def state_of(life: GroupLife | None, last_death_us: int, now_us: int) -> GroupState:
    """Return where a group is in its life, if its last death was then."""
    if life is None or not (life.acknowledged_at_us or life.fixed_at_us):
        return GroupState.OPEN
    if life.fixed_at_us and last_death_us > life.fixed_at_us:
        return GroupState.CAME_BACK
    since_us = max(life.acknowledged_at_us, life.fixed_at_us, last_death_us)
    if now_us - since_us >= QUIET_AFTER_US:
        return GroupState.QUIET
    return GroupState.FIXED if life.fixed_at_us else GroupState.ACKNOWLEDGED


def is_over(life: GroupLife, now_us: int) -> bool:
    """Whether a group is forgotten by itself, if it has no dead letters."""
    touched_us = max((act.at_us for act in life.acts), default=0)
    return now_us - max(touched_us, life.last_at_us) >= FORGET_AFTER_US


def with_deaths(life: GroupLife, count: int, last_at_us: int) -> GroupLife:
    """Return the life after so many more deaths."""
    return replace(life, total=life.total + count, last_at_us=max(life.last_at_us, last_at_us))


def count_death(lives: MutableMapping[str, GroupLife], job: Job) -> None:
    """Count a job that died in the life of its group, if that has one."""
    key = group_key(job)
    if key is not None and (life := lives.get(group_id(key))) is not None:
        lives[group_id(key)] = with_deaths(life, 1, job.finished_at_us)


def with_before_and_after(
    entries: tuple[AuditEntry, ...], before: GroupLife | None, after: GroupLife | None
) -> tuple[AuditEntry, ...]:
    """Return the audit entries of a change with what it changed in them."""
    found: list[AuditEntry] = []
    for entry in entries:
        changes = msgspec.json.decode(entry.changes, type=dict[str, object])
        changes |= {"before": _for_audit(before), "after": _for_audit(after)}
        found.append(replace(entry, changes=msgspec.json.encode(changes).decode()))
    return tuple(found)


def _for_audit(life: GroupLife | None) -> dict[str, object] | None:
    if life is None:
        return None
    fields = ("acknowledged_at_us", "fixed_at_us", "fixed_in", "owner", "muted_until_us")
    return {field: getattr(life, field) for field in fields}
