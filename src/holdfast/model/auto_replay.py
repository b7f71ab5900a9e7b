"""Which dead letters go back by themselves, since what they need works again.

Only transient failures do. Those that died of an outage are replayed once for each outage. Others
are replayed once ever, when nothing of their kind has died in their queue for a while. Everything
follows from what the store has, so that all processes decide the same.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from .failure import FailureClass
from .flags import RATE_LIMITED, auto_replay_on
from .job import MICROSECONDS, State
from .operation import Operation, Phase
from .outage import OUTAGE_REASONS, Outage, dependency_of
from .policy import Rate
from .search import FailureGroup, Filter

SYSTEM_NAME = "holdfast"
"""Who starts these operations."""
REPLAY_RATE = Rate(10, 1.0)
RATE_LIMITED_RATE = Rate(1, 1.0)
AFTER_OUTAGE_SECONDS = 60.0
"""How long a dependency has to work after an outage, without another death."""
HEALTHY_SECONDS = 300.0
"""For how long a queue without an outage must have had no such death."""
BEFORE_OUTAGE_SECONDS = 900.0
"""Deaths this long before an outage was noticed belong to it."""
MAX_AGE_SECONDS = 86_400.0
"""Older outages and older letters are left to people."""
_OUTAGE, _QUEUE = "auto-outage-", "auto-queue-"


class AutoReplay(msgspec.Struct, frozen=True):
    """A replay that is due, if the queue was seen to work and if there are letters to replay."""

    id: str
    queue: str
    wanted: Filter
    rate: Rate
    why: str
    works_since_us: int
    """The queue must have completed jobs since then; 0: it is known to work."""


def oldest_us(now_us: int) -> int:
    """Return when the oldest letters that matter died."""
    return now_us - int(MAX_AGE_SECONDS * MICROSECONDS)


def is_auto_replay(operation: Operation) -> bool:
    """Whether an operation is an auto-replay."""
    return operation.by == SYSTEM_NAME and operation.id.startswith((_OUTAGE, _QUEUE))


def switched_on(flags: Mapping[str, bool], queue: str, reason: str) -> bool:
    """Whether the flags allow it for this queue and reason."""
    return auto_replay_on(flags, reason, queue, dependency_of(queue))


def due_replays(
    groups: Iterable[FailureGroup],
    outages: Sequence[Outage],
    operations: Sequence[Operation],
    now_us: int,
) -> list[AutoReplay]:
    """Return what is due, for the groups that may be replayed.

    The groups have transient letters only, ``outages`` are those that last and those that have
    ended, and ``operations`` all that the store remembers, the newest first.
    """
    mine = [one for one in operations if is_auto_replay(one)]
    lasting = {one.dependency for one in outages if one.active}
    by_queue: defaultdict[str, list[FailureGroup]] = defaultdict(list)
    for group in groups:
        if group.count and dependency_of(group.queue) not in lasting:
            by_queue[group.queue].append(group)
    due: list[AutoReplay] = []
    for queue, theirs in sorted(by_queue.items()):
        ended = [one for one in outages if one.dependency == dependency_of(queue)]
        before = [one for one in mine if queue in one.wanted.queues]
        of_outage = [one for one in theirs if one.error_reason in OUTAGE_REASONS]
        for outage in ended:
            due += _after_outage(queue, outage, of_outage, before, now_us)
        limited = [one for one in theirs if one.error_reason == RATE_LIMITED]
        others = [one for one in theirs if one.error_reason != RATE_LIMITED]
        calm_us = now_us - int(HEALTHY_SECONDS * MICROSECONDS)
        if all(one.ended_at_us < calm_us for one in ended):
            due += _without_outage(queue, others, before, now_us)
            due += _without_outage(queue, limited, before, now_us)
    return due


def _after_outage(
    queue: str,
    outage: Outage,
    groups: Sequence[FailureGroup],
    before: Sequence[Operation],
    now_us: int,
) -> list[AutoReplay]:
    """Return the replay of what died of an outage that has ended for a while."""
    calm_us = now_us - int(AFTER_OUTAGE_SECONDS * MICROSECONDS)
    from_us = max(0, outage.since_us - int(BEFORE_OUTAGE_SECONDS * MICROSECONDS))
    until_us = outage.ended_at_us
    name = _name(_OUTAGE, outage.dependency, str(outage.since_us), queue)
    fallen = [one for one in groups if one.last_at_us >= from_us and one.first_at_us < until_us]
    if (
        not fallen
        or not oldest_us(now_us) <= until_us <= calm_us
        or any(one.last_at_us > calm_us for one in groups)
        or any(one.id == name for one in before)
    ):
        return []
    why = f"auto-replay: {outage.dependency} works again after an outage"
    # If a person or a flag ended it, nothing has told yet that the dependency works.
    works_since_us = until_us if outage.ended_by else 0
    wanted = _letters(queue, fallen, from_us, until_us)
    return [AutoReplay(name, queue, wanted, REPLAY_RATE, why, works_since_us)]


def _without_outage(
    queue: str, groups: Sequence[FailureGroup], before: Sequence[Operation], now_us: int
) -> list[AutoReplay]:
    """Return the replay of letters that nothing has replayed, if none died for a while.

    Each operation is followed by one for what died since: so a letter that one has come across,
    or that one which was aborted has left, is left to people.
    """
    limited = any(one.error_reason == RATE_LIMITED for one in groups)
    same = [one for one in before if (RATE_LIMITED in one.wanted.error_reasons) is limited]
    if any(not one.ended for one in same):
        return []
    earlier = [one for one in same if one.id.startswith(_QUEUE)]
    left = [one.as_of_us + 1 for one in same if one in earlier or one.phase is Phase.ABORTED]
    from_us = max(oldest_us(now_us), 0, *left)
    fallen = [one for one in groups if one.last_at_us >= from_us]
    last_us = max((one.last_at_us for one in groups), default=0)
    if not fallen or last_us > now_us - int(HEALTHY_SECONDS * MICROSECONDS):
        return []
    wanted = msgspec.structs.replace(_letters(queue, fallen, from_us, now_us), replay_run="")
    name = _name(_QUEUE, queue, str(limited), earlier[0].id if earlier else "")
    why = f"auto-replay: {queue} works, and nothing of this kind died for 5 minutes"
    rate = RATE_LIMITED_RATE if limited else REPLAY_RATE
    return [AutoReplay(name, queue, wanted, rate, why, last_us)]


def _letters(queue: str, groups: Iterable[FailureGroup], from_us: int, to_us: int) -> Filter:
    return Filter(
        states=(State.DEAD,),
        queues=(queue,),
        error_reasons=tuple(sorted({group.error_reason for group in groups})),
        classes=(FailureClass.TRANSIENT,),
        finished_from_us=from_us,
        finished_to_us=to_us,
    )


def _name(prefix: str, *parts: str) -> str:
    """Return the id of the operation for this: every process finds the same one."""
    return prefix + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]
