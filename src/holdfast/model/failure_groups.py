"""Dead letters in groups, to be examined, fixed and replayed together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from .access import Caller
from .errors import InvalidInput
from .group_life import GroupKey, GroupLife, group_id, group_key, is_over, state_of
from .job import Job, State
from .search import HOUR_US, TREND_HOURS, FailureGroup, Filter


def key_of(group: FailureGroup) -> GroupKey:
    """Return the key of a group."""
    return GroupKey(
        group.queue, group.task, group.error_reason, group.status or 0, group.fingerprint
    )


def group_dead_jobs(dead: Iterable[Job], now_us: int) -> list[FailureGroup]:
    """Return the groups of these dead jobs at this time, the largest first."""
    members: defaultdict[GroupKey, list[Job]] = defaultdict(list)
    for job in dead:
        key = group_key(job)
        if key is not None:
            members[key].append(job)
    return sorted_groups(_group_of(key, jobs, now_us) for key, jobs in members.items())


def _group_of(key: GroupKey, jobs: Sequence[Job], now_us: int) -> FailureGroup:
    hours = Counter(job.finished_at_us // HOUR_US * HOUR_US for job in jobs)
    return FailureGroup(
        id=group_id(key),
        queue=key.queue,
        task=key.task,
        error_reason=key.error_reason,
        status=key.status or None,
        failure_class=min(job.failure.failure_class for job in jobs if job.failure is not None),
        fingerprint=key.fingerprint,
        count=len(jobs),
        first_at_us=min(job.finished_at_us for job in jobs),
        last_at_us=max(job.finished_at_us for job in jobs),
        tenants=len({job.tenant for job in jobs}),
        scopes=len({(job.tenant, job.scope) for job in jobs}),
        trend=trend_of(hours.items(), now_us),
    )


def sorted_groups(groups: Iterable[FailureGroup]) -> list[FailureGroup]:
    """Return the groups, the largest first, then the latest."""
    return sorted(groups, key=lambda group: (-group.count, -group.last_at_us, key_of(group)))


def trend_since_us(now_us: int) -> int:
    """Return when the first hour of a trend begins."""
    return now_us // HOUR_US * HOUR_US - (TREND_HOURS - 1) * HOUR_US


def trend_of(hours: Iterable[tuple[int, int]], now_us: int) -> tuple[int, ...]:
    """Return the trend of a group from the starts of hours, and how many died in each."""
    trend = [0] * TREND_HOURS
    since_us = trend_since_us(now_us)
    for hour_us, count in hours:
        at = (hour_us - since_us) // HOUR_US
        if 0 <= at < TREND_HOURS:
            trend[at] += count
    return tuple(trend)


def with_lives(
    groups: Sequence[FailureGroup],
    lives: Mapping[str, GroupLife],
    wanted: Filter,
    caller: Caller,
    now_us: int,
) -> list[FailureGroup]:
    """Return the groups with what people did, and those touched ones that have no dead letters.

    What people did is about all tenants: a caller of limited reach gets the state alone, by what
    died within its reach.
    """
    if not lives:
        return list(groups)
    found: list[FailureGroup] = []
    for group in groups:
        life = lives.get(group.id)
        last_us = group.last_at_us
        if life is not None and caller.unlimited:
            last_us = max(last_us, life.last_at_us)
        state = state_of(life, last_us, now_us)
        found.append(replace(group, state=state, life=life if caller.unlimited else None))
    if caller.unlimited:
        listed = {group.id for group in groups}
        found += [
            _without_letters(name, life, now_us)
            for name, life in lives.items()
            if name not in listed and _may_match(wanted, life) and not is_over(life, now_us)
        ]
    return sorted_groups(found)


def _without_letters(name: str, life: GroupLife, now_us: int) -> FailureGroup:
    return FailureGroup(
        id=name,
        queue=life.queue,
        task=life.task,
        error_reason=life.error_reason,
        status=life.status,
        failure_class=life.failure_class,
        fingerprint=life.fingerprint,
        count=0,
        first_at_us=life.first_at_us,
        last_at_us=life.last_at_us,
        tenants=0,
        scopes=0,
        state=state_of(life, life.last_at_us, now_us),
        life=life,
    )


def _may_match(wanted: Filter, life: GroupLife) -> bool:
    """Whether a filter is about whole groups only, and about this one."""
    of_groups = Filter(
        states=wanted.states,
        queues=wanted.queues,
        tasks=wanted.tasks,
        error_reasons=wanted.error_reasons,
        classes=wanted.classes,
        statuses=wanted.statuses,
        fingerprint=wanted.fingerprint,
    )
    return (
        wanted == of_groups
        and (not wanted.states or State.DEAD in wanted.states)
        and (not wanted.queues or life.queue in wanted.queues)
        and (not wanted.tasks or life.task in wanted.tasks)
        and (not wanted.error_reasons or life.error_reason in wanted.error_reasons)
        and (not wanted.classes or life.failure_class in wanted.classes)
        and (not wanted.statuses or (life.status or 0) in wanted.statuses)
        and (wanted.fingerprint is None or life.fingerprint == wanted.fingerprint)
    )


def life_of(group: FailureGroup) -> GroupLife:
    """Return the life of a group: a new one if no person has touched it yet."""
    return group.life or GroupLife(
        queue=group.queue,
        task=group.task,
        error_reason=group.error_reason,
        status=group.status,
        fingerprint=group.fingerprint,
        failure_class=group.failure_class,
        first_at_us=group.first_at_us,
        last_at_us=group.last_at_us,
        total=group.count,
    )


def dead_of_group(group: FailureGroup) -> Filter:
    """Return the filter that finds the dead letters of a group."""
    return replace(narrowed(Filter(), group), states=(State.DEAD,))


def narrowed(wanted: Filter, group: FailureGroup) -> Filter:
    """Return the filter, for members of this group alone.

    Raise ``InvalidInput`` if it cannot match any of them.
    """
    fields: dict[str, object] = {}
    for field, value in (
        ("queues", group.queue),
        ("tasks", group.task),
        ("error_reasons", group.error_reason),
        ("statuses", group.status or 0),
    ):
        asked: tuple[object, ...] = getattr(wanted, field)
        if asked and value not in asked:
            raise InvalidInput("group", f"{group.id} has {value!r} alone as {field}: ask for that")
        fields[field] = (value,)
    if wanted.fingerprint not in (None, group.fingerprint):
        raise InvalidInput("group", f"{group.id} has another fingerprint")
    make: Callable[..., Filter] = replace
    return make(wanted, fingerprint=group.fingerprint, **fields)
