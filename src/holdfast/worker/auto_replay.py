"""Auto-replay: dead letters of a dependency that works again go back by themselves.

Only transient failures do. After an outage those that died because of it are replayed, once for
each outage. Other transient ones are replayed once ever, when their queue has completed jobs and
had no such death for a while. Each is an operation of the system's own, at a low rate, which aborts
itself if too many fail again.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.engines.clock import monotonic
from holdfast.engines.contract import Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.actions import ReplayJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.failure import FailureClass
from holdfast.model.job import MICROSECONDS, State
from holdfast.model.operation import NewOperation
from holdfast.model.outage import OUTAGE_REASONS, Outage, dependency_of
from holdfast.model.policy import DEFAULT_POLICY, Rate
from holdfast.model.search import FailureGroup, Filter

log = StructuredLog("holdfast.auto_replay")

AUTO_REPLAY = "auto_replay"
"""The flag that switches it off; ``auto_replay/NAME`` is for one queue or one error_reason."""
RATE_LIMITED = "rate_limited"
"""This reason is off unless its flag is on, and has a lower rate."""
REPLAY_RATE = Rate(10, 1.0)
RATE_LIMITED_RATE = Rate(1, 1.0)
AFTER_OUTAGE_SECONDS = 60.0
"""How long a dependency has to work after an outage."""
HEALTHY_SECONDS = 300.0
"""For how long a queue without an outage must have had no such death."""
BEFORE_OUTAGE_SECONDS = 900.0
"""Deaths this long before an outage was noticed belong to it."""
MAX_AGE_SECONDS = 86_400.0
"""Older outages and older letters are left to people."""
INTERVAL_SECONDS = 15.0
COST_FACTOR = 50
_SYSTEM = "holdfast"


def auto_replay_on(flags: Mapping[str, bool], queue: str, reason: str) -> bool:
    """Whether letters of this queue and reason may be replayed without a person."""
    own = [flags[flag] for name in (queue, reason) if (flag := f"{AUTO_REPLAY}/{name}") in flags]
    if reason == RATE_LIMITED:
        return flags.get(f"{AUTO_REPLAY}/{reason}", False) and all(own)
    return all(own) if own else flags.get(AUTO_REPLAY, True)


class AutoReplayLoop:
    """Starts operations; ``OperationLoop`` carries them out.

    Several processes may run it: the id of an operation follows from what it is for.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seen: set[str] = set()
        """The operations that are known to exist."""

    async def step(self, now_us: int) -> int:
        """Start what is due."""
        began = monotonic()
        flags = await self._engine.flags()
        if flags.get(AUTO_REPLAY, True) or any(
            on and name.startswith(f"{AUTO_REPLAY}/") for name, on in flags.items()
        ):
            await self._look(flags)
        # Looking at very many letters takes its time: then look less often.
        pause_seconds = max(INTERVAL_SECONDS, COST_FACTOR * (monotonic() - began))
        return now_us + int(pause_seconds * MICROSECONDS)

    async def _look(self, flags: Mapping[str, bool]) -> None:
        engine = self._engine
        now_us = await engine.now_us()
        oldest_us = now_us - int(MAX_AGE_SECONDS * MICROSECONDS)
        wanted = Filter(
            states=(State.DEAD,), classes=(FailureClass.TRANSIENT,), finished_from_us=oldest_us
        )
        groups = [group for group in await engine.groups(wanted) if group.count]
        if not groups:
            return
        policies = await engine.policies()
        groups = [
            group
            for group in groups
            if auto_replay_on(flags, group.queue, group.error_reason)
            and not policies.get(group.queue, DEFAULT_POLICY).paused
        ]
        outages = await engine.outages(ended=True)
        lasting = {one.dependency for one in outages if one.active}
        groups = [group for group in groups if dependency_of(group.queue) not in lasting]
        for outage in outages:
            if not outage.active and outage.ended_at_us >= oldest_us:
                await self._after_outage(outage, groups, now_us)
        await self._without_outage(groups, outages, oldest_us, now_us)

    async def _after_outage(
        self, outage: Outage, groups: Sequence[FailureGroup], now_us: int
    ) -> None:
        """Replay what died because of an outage that has ended for a while."""
        if now_us < outage.ended_at_us + int(AFTER_OUTAGE_SECONDS * MICROSECONDS):
            return
        since_us = outage.since_us - int(BEFORE_OUTAGE_SECONDS * MICROSECONDS)
        theirs = [
            group
            for group in groups
            if dependency_of(group.queue) == outage.dependency
            and group.error_reason in OUTAGE_REASONS
            and group.last_at_us >= since_us
            and group.first_at_us < outage.ended_at_us
        ]
        if theirs:
            wanted = _letters(theirs, max(since_us, 0), outage.ended_at_us)
            name = _name("outage", outage.dependency, str(outage.since_us))
            why = f"auto-replay: {outage.dependency} works again after an outage"
            await self._start(name, wanted, why, REPLAY_RATE)

    async def _without_outage(
        self,
        groups: Sequence[FailureGroup],
        outages: Sequence[Outage],
        oldest_us: int,
        now_us: int,
    ) -> None:
        """Replay letters of queues that work, each once ever."""
        quiet_us = now_us - int(HEALTHY_SECONDS * MICROSECONDS)
        by_queue: defaultdict[tuple[str, bool], list[FailureGroup]] = defaultdict(list)
        for group in groups:
            by_queue[group.queue, group.error_reason == RATE_LIMITED].append(group)
        for (queue, limited), theirs in by_queue.items():
            last_us = max(group.last_at_us for group in theirs)
            had_outage = any(
                one.dependency == dependency_of(queue) and one.ended_at_us >= quiet_us
                for one in outages
            )
            if last_us > quiet_us or had_outage or not await self._works(queue, last_us, now_us):
                continue
            wanted = msgspec.structs.replace(_letters(theirs, oldest_us, now_us), replay_run="")
            if not (await self._engine.find(wanted, limit=1)).jobs:
                continue  # each was replayed before
            name = _name("queue", queue, str(last_us), str(limited))
            why = f"auto-replay: {queue} works, and nothing of this kind died for 5 minutes"
            await self._start(name, wanted, why, RATE_LIMITED_RATE if limited else REPLAY_RATE)

    async def _works(self, queue: str, since_us: int, now_us: int) -> bool:
        """Whether the queue has completed jobs since then."""
        series = await self._engine.samples([queue], from_us=since_us, to_us=now_us + 1)
        return any(point.completed_per_second > 0 for point in series.get(queue, ()))

    async def _start(self, name: str, wanted: Filter, why: str, rate: Rate) -> None:
        if name in self._seen:
            return
        new = NewOperation(id=name, action=ReplayJobs(), wanted=wanted, rate=rate)
        changes = msgspec.json.encode({"action": "replay", "queues": wanted.queues})
        entry = AuditEntry("operation.start", "operation", name, _SYSTEM, changes.decode(), why)
        started = await self._engine.start_operation(new, Attribution(_SYSTEM, why, (entry,)))
        self._seen.add(name)
        if not started.acted and not started.ended:
            log.emit("auto_replay.started", operation=name, why=why)


def _letters(groups: Iterable[FailureGroup], from_us: int, to_us: int) -> Filter:
    listed = list(groups)
    return Filter(
        states=(State.DEAD,),
        queues=tuple(sorted({group.queue for group in listed})),
        error_reasons=tuple(sorted({group.error_reason for group in listed})),
        classes=(FailureClass.TRANSIENT,),
        finished_from_us=from_us,
        finished_to_us=to_us,
    )


def _name(*parts: str) -> str:
    """Return the id of the operation for this: every process finds the same one."""
    return "auto-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]
