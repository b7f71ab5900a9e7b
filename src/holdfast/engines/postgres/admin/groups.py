"""Groups of dead letters, and what people did with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import Row, SansIO, Statement, execute, execute_all
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import Attribution
from holdfast.model.errors import UnknownGroup
from holdfast.model.failure import FailureClass
from holdfast.model.failure_groups import (
    group_dead_jobs,
    key_of,
    life_of,
    sorted_groups,
    trend_of,
    trend_since_us,
    with_lives,
)
from holdfast.model.group_life import (
    GroupChange,
    GroupKey,
    GroupLife,
    change_life,
    group_id,
    is_over,
    with_before_and_after,
)
from holdfast.model.job import Job, State
from holdfast.model.search import EVERYTHING, MAX_PAGE, FailureGroup, Filter, Place, place_of

from .audit import add_audit
from .filter_parameters import filter_parameters, is_exact
from .queries import find

_OF_GROUPS = frozenset({"queues", "tasks", "error_reasons", "classes", "statuses", "fingerprint"})
"""Conditions that all dead letters of a group and a class meet alike."""


def groups(wanted: Filter, caller: Caller, context: CallContext) -> SansIO[list[FailureGroup]]:
    """Return dead letters in groups, the largest first."""
    [[[now_us]], packed] = yield from execute_all(context.now(), Statement("list_group_lives", {}))
    lives = lives_of(packed)
    if not is_exact(wanted, (State.DEAD,)):
        counted = yield from _groups_by_job(wanted, caller, now_us, context)
        return with_lives(counted, lives, wanted, caller, now_us)
    conditions = filter_parameters(wanted, caller, context)
    source = "group_tallies" if _is_of_whole_groups(wanted, caller) else "group_dead"
    grouped, by_hour, holding = yield from execute_all(
        Statement(source, conditions),
        Statement(f"{source}_by_hour", {**conditions, "since_us": trend_since_us(now_us)}),
        Statement("count_held_behind", conditions),
    )
    grouped = yield from _of_one_class(grouped, wanted, caller, context)
    hours: defaultdict[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
    for *group, hour_us, count in by_hour:
        hours[tuple(group)].append((hour_us, count))
    found = (_group(row, trend_of(hours[tuple(row[:5])], now_us)) for row in grouped)
    return with_lives(_with_held(found, holding), lives, wanted, caller, now_us)


def _is_of_whole_groups(wanted: Filter, caller: Caller) -> bool:
    """Whether a group of one class is found with all its dead letters, or not at all."""
    return (
        caller.unlimited
        and wanted.conditions <= _OF_GROUPS | {"states", "without"}
        and (not wanted.states or State.DEAD in wanted.states)
        and all(one.conditions <= _OF_GROUPS for one in wanted.without)
    )


def _of_one_class(
    grouped: Iterable[Row], wanted: Filter, caller: Caller, context: CallContext
) -> SansIO[list[Row]]:
    """Return each group once. Those of several classes are counted: one tenant may be in each."""
    alike: defaultdict[GroupKey, list[Row]] = defaultdict(list)
    for row in grouped:
        alike[GroupKey(*row[:5])].append(row)
    found = [some[0] for some in alike.values() if len(some) == 1]
    for key, some in alike.items():
        if len(some) > 1:
            of_key = replace(
                wanted,
                queues=(key.queue,),
                tasks=(key.task,),
                error_reasons=(key.error_reason,),
                statuses=(key.status,),
                fingerprint=key.fingerprint,
            )
            found += yield from execute("group_dead", **filter_parameters(of_key, caller, context))
    return found


def _groups_by_job(
    wanted: Filter, caller: Caller, now_us: int, context: CallContext
) -> SansIO[list[FailureGroup]]:
    """Return the groups of a filter that the server cannot tell from its columns alone."""
    if wanted.states and State.DEAD not in wanted.states:
        return []
    wanted = replace(wanted, states=(State.DEAD,))
    dead: list[Job] = []
    after: Place | None = None
    while True:
        page = yield from find(wanted, after, MAX_PAGE, caller, context)
        dead += page
        if len(page) < MAX_PAGE:
            break
        after = place_of(page[-1])
    keyed: defaultdict[str, list[str]] = defaultdict(list)
    for job in dead:
        if job.ties.key is not None:
            keyed[job.tenant].append(job.id)
    holding: list[Row] = []
    for tenant, ids in keyed.items():
        some = filter_parameters(Filter(tenant=tenant, ids=tuple(ids)), caller, context)
        holding += yield from execute("count_held_behind", **some)
    return _with_held(group_dead_jobs(dead, now_us), holding)


def _with_held(found: Iterable[FailureGroup], holding: Iterable[Row]) -> list[FailureGroup]:
    """Return the groups with how many jobs each holds back, the largest first."""
    held: defaultdict[tuple[object, ...], dict[tuple[str, str], int]] = defaultdict(dict)
    for *group, tenant, key, behind in holding:
        # Of several dead letters of a key the first holds all that the others hold.
        keys = held[tuple(group)]
        keys[tenant, key] = max(keys.get((tenant, key), 0), behind)
    return sorted_groups(
        replace(group, held_behind=sum(held[key_of(group)].values())) for group in found
    )


def _group(row: Row, trend: tuple[int, ...]) -> FailureGroup:
    key = GroupKey(*row[:5])
    return FailureGroup(
        id=group_id(key),
        queue=key.queue,
        task=key.task,
        error_reason=key.error_reason,
        status=key.status or None,
        failure_class=FailureClass(row[5]),
        fingerprint=key.fingerprint,
        count=row[6],
        first_at_us=row[7],
        last_at_us=row[8],
        tenants=row[9],
        scopes=row[10],
        trend=trend,
    )


def lives_of(found: Iterable[Row]) -> dict[str, GroupLife]:
    """Return what people did with groups, by id."""
    return {
        name: replace(
            rows.GROUP_LIFE.decode(packed), first_at_us=first_us, last_at_us=last_us, total=total
        )
        for name, first_us, last_us, total, packed in found
    }


def set_group(
    name: str, change: GroupChange, attribution: Attribution, context: CallContext
) -> SansIO[FailureGroup | None]:
    """Change what is stored about a group; None if it is forgotten."""
    yield from execute("lock_keys", names=["groups"])
    known = {one.id: one for one in (yield from groups(EVERYTHING, SYSTEM, context))}
    if name not in known:
        raise UnknownGroup(name)
    [[[now_us]], packed] = yield from execute_all(context.now(), Statement("list_group_lives", {}))
    before = known[name].life
    life = life_of(known[name])
    after = change_life(life, change, attribution.by, attribution.why, now_us)
    over = [
        other
        for other, old in lives_of(packed).items()
        if other not in known and is_over(old, now_us)
    ]
    if after is None:
        over.append(name)
    else:
        yield from execute_all(put_life(name, after))
    if over:
        yield from execute("drop_group_lives", ids=over)
    yield from add_audit(with_before_and_after(attribution.audit, before, after), now_us)
    found = yield from groups(EVERYTHING, SYSTEM, context)
    return next((one for one in found if one.id == name), None)


def put_life(name: str, life: GroupLife) -> Statement:
    """Return the statement that stores what people did with a group."""
    columns = {
        "id": name,
        "first_at_us": life.first_at_us,
        "last_at_us": life.last_at_us,
        "total": life.total,
        "life": rows.pack(life),
    }
    return Statement("put_group_life", columns)
