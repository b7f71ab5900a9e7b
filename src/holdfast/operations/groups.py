"""Groups of failures: look at them, and store what a person does about one."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.engines.contract import Engine
from holdfast.model.audit import Attribution
from holdfast.model.errors import InvalidInput, UnknownGroup
from holdfast.model.failure_groups import dead_of_group, narrowed
from holdfast.model.group_life import GroupAct, GroupChange, GroupState
from holdfast.model.search import EVERYTHING, FailureGroup, Filter

from .attribution import Author, entry_of
from .views import JobView, date_of

SAMPLES = 5
_MOST_HIT = 20
"""How many of the tenants and scopes that a group hits are named."""
_HIT_PAGES = 5


class GroupActView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person did with a group."""

    at: datetime
    by: str
    action: str
    text: str
    value: str = ""

    @classmethod
    def of(cls, act: GroupAct) -> GroupActView:
        """Return the act for people."""
        return cls(date_of(act.at_us), act.by, act.verb.value, act.text, act.value)


class GroupView(msgspec.Struct, frozen=True):
    """A group of similar dead letters, and what people did with it."""

    id: str
    count: int
    error_reason: str
    status: int | None
    failure_class: str
    task: str
    queue: str
    held_behind: int
    tenants: int
    scopes: int
    first_at: datetime
    last_at: datetime
    trend: tuple[int, ...]
    """How many died in each of the last 24 hours."""
    fingerprint: str
    state: str
    owner: str = ""
    fixed_in: str = ""
    muted_until: datetime | None = None
    total: int = 0
    """How many died of it since a person touched it first, and those that were there then."""
    acts: list[GroupActView] = []

    @classmethod
    def of(cls, group: FailureGroup) -> GroupView:
        """Return the group for people."""
        life = group.life
        view = cls(
            id=group.id,
            count=group.count,
            error_reason=group.error_reason,
            status=group.status,
            failure_class=group.failure_class.value,
            task=group.task,
            queue=group.queue,
            held_behind=group.held_behind,
            tenants=group.tenants,
            scopes=group.scopes,
            first_at=date_of(group.first_at_us),
            last_at=date_of(group.last_at_us),
            trend=group.trend,
            fingerprint=group.fingerprint,
            state=group.state.value,
            total=group.count,
        )
        if life is None:
            return view
        return msgspec.structs.replace(
            view,
            first_at=date_of(min(group.first_at_us, life.first_at_us)),
            last_at=date_of(max(group.last_at_us, life.last_at_us)),
            owner=life.owner,
            fixed_in=life.fixed_in,
            muted_until=date_of(life.muted_until_us) if life.muted_until_us else None,
            total=life.total,
            acts=[GroupActView.of(act) for act in life.acts],
        )


class GroupDetail(msgspec.Struct, frozen=True):
    """One group with its oldest dead letters, and whom it hits."""

    group: GroupView
    samples: list[JobView]
    hit: list[tuple[str, str]]
    """Tenants and scopes that it hits, as far as its oldest letters show them."""


class GroupOperations:
    """What people can do with groups of failures."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def list(
        self, wanted: Filter = EVERYTHING, states: frozenset[GroupState] = frozenset()
    ) -> list[GroupView]:
        """Return the groups of the dead letters that a filter finds; only in these states."""
        return [
            GroupView.of(group)
            for group in await self._engine.groups(wanted)
            if not states or group.state in states
        ]

    async def get(self, group_id: str) -> FailureGroup:
        """Return a group, or raise ``UnknownGroup``."""
        for group in await self._engine.groups():
            if group.id == group_id:
                return group
        raise UnknownGroup(group_id)

    async def narrow(self, wanted: Filter, group_id: str) -> Filter:
        """Return the filter, for members of this group; raise ``UnknownGroup``."""
        return narrowed(wanted, await self.get(group_id))

    async def detail(self, group_id: str) -> GroupDetail:
        """Return everything about a group, or raise ``UnknownGroup``."""
        group = await self.get(group_id)
        samples: list[JobView] = []
        hit: dict[tuple[str, str], None] = {}
        cursor = ""
        for _page in range(_HIT_PAGES):
            page = await self._engine.find(dead_of_group(group), cursor=cursor, limit=200)
            samples += [JobView.of(job) for job in page.jobs[: SAMPLES - len(samples)]]
            hit |= dict.fromkeys((job.tenant, job.scope) for job in page.jobs)
            cursor = page.cursor
            if not cursor or len(hit) >= _MOST_HIT:
                break
        return GroupDetail(GroupView.of(group), samples, sorted(hit)[:_MOST_HIT])

    async def change(self, group_id: str, change: GroupChange, who: Author) -> GroupView | None:
        """Store what a person does with a group; return it, None if it was forgotten and is gone.

        Raise ``UnknownGroup`` or ``InvalidInput``.
        """
        if not who.why.strip():
            raise InvalidInput("why", "say why: it is kept with the group")
        named = {"value": change.value, "until_us": change.until_us}
        changes = {name: value for name, value in named.items() if value}
        entry = entry_of(f"group.{change.verb.value}", "group", group_id, who, changes)
        attribution = Attribution(who.by, who.why, (entry,))
        found = await self._engine.set_group(group_id, change, attribution)
        return None if found is None else GroupView.of(found)
