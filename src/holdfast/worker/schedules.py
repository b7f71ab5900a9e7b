"""Cron without a leader: any number of processes run the same loop, and each tick runs once.

A tick becomes a job whose id is the schedule's name and the tick's time. The second enqueue of it
finds that the job exists, even after a restart: engines remember finished ids for
``remember_seconds``, and no loop looks further back.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal, get_args
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from holdfast.engines.contract import Engine, OnDuplicate, Receipt
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.audit import Attribution
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import InvalidInput
from holdfast.model.job import (
    DEFAULT_QUEUE,
    MICROSECONDS,
    NewJob,
    admit,
    check_id,
    check_name,
)
from holdfast.model.retry import DEFAULT_MAX_ATTEMPTS

log = StructuredLog("holdfast.schedules")

Missed = Literal["latest", "skip", "all"]
Overlap = Literal["skip", "allow"]
Enqueue = Callable[[Sequence[NewJob], OnDuplicate], Awaitable[list[Receipt]]]
States = Callable[[], Awaitable[Mapping[str, ScheduleState]]]

MAX_TICKS_PER_STEP = 100
"""With ``missed="all"``: the most ticks of one schedule that one step enqueues."""
MAX_BYTES_PER_STEP = 1024 * 1024
"""The most payload that one step enqueues for one schedule, if that is more than one tick."""
MAX_CATCH_UP_SECONDS = 366 * 86_400
ON_TIME_SECONDS = 60.0
"""With ``missed="skip"``: how late a running loop may see a tick and still run it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A job for each tick of a cron expression: five fields, or six with seconds (cronsim).

    **Missed ticks**: those that no loop saw in time, because none ran or the clock jumped forward.
    Of those within ``catch_up_seconds`` (older ones never run), ``latest`` runs the newest only,
    ``all`` runs each, oldest first, and ``skip`` runs none. A loop that starts counts earlier ticks
    as missed, except those before the store knew the schedule; a running loop may be
    ``ON_TIME_SECONDS`` late before ``skip`` drops a tick.

    **Overlap**: with ``skip`` a tick is dropped while the job of an earlier one is unfinished,
    retries included. The drop is not stored: a later loop may still run the tick, once, when that
    job is finished. ``allow`` runs every tick.

    **Daylight saving**, as in Debian's cron. Five fields whose minute and hour do not begin with
    ``*`` name a time of day, and run once a day: at the end of the gap if spring skips that time
    (02:30 becomes 03:00), the first time if autumn repeats it. Everything else follows elapsed
    time: no tick in the skipped hour, and ticks in both of the repeated ones.
    """

    name: str
    expression: str
    task: str
    time_zone: str = "UTC"
    payload: bytes = b"{}"
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    missed: Missed = "latest"
    overlap: Overlap = "skip"
    catch_up_seconds: float = 600.0

    def __post_init__(self) -> None:
        for field in ("name", "expression", "time_zone"):
            check_name(field, getattr(self, field))
        for field, words in (("missed", get_args(Missed)), ("overlap", get_args(Overlap))):
            if (word := getattr(self, field)) not in words:
                raise InvalidInput(field, f"{word!r} is not one of {', '.join(words)}")
        if self.missed == "all" and self.overlap == "skip":
            raise InvalidInput(
                "missed", 'ticks that run all at once overlap: "all" needs overlap="allow"'
            )
        if type(self.catch_up_seconds) not in (int, float) or not (
            1 <= self.catch_up_seconds <= MAX_CATCH_UP_SECONDS
        ):
            problem = f"not a number of seconds from 1 to {MAX_CATCH_UP_SECONDS:,}"
            raise InvalidInput("catch_up_seconds", f"{self.catch_up_seconds!r} is {problem}")
        if type(self.payload) is not bytes:
            problem = f"a {type(self.payload).__name__} is not JSON in bytes"
            raise InvalidInput("payload", problem)
        self._check_ticks()
        job = self.job_at(0)
        admit(job, check_id(job.id or "", "name"), 0, 0)

    def _check_ticks(self) -> None:
        try:
            ZoneInfo(self.time_zone)
        except (KeyError, ValueError, OSError):
            raise InvalidInput(
                "time_zone",
                f"{self.time_zone!r} is not a time zone on this machine, such as Europe/Berlin "
                "(the tzdata package has them)",
            ) from None
        try:
            has_ticks = self.next_us(0) is not None
        except CronSimError as error:
            problem = f"{self.expression!r} is not a cron expression: {error}"
            raise InvalidInput("expression", problem) from None
        if not has_ticks:
            raise InvalidInput("expression", f"{self.expression!r} has no tick")

    def job_at(self, tick_us: int) -> NewJob:
        """Return the job of this tick: the same one in every process."""
        tick = _EPOCH + tick_us * _MICROSECOND
        return NewJob(
            task=self.task,
            payload=self.payload,
            id=f"cron/{self.name}/{tick:%Y%m%dT%H%M%SZ}",
            queue=self.queue,
            priority=self.priority,
            max_attempts=self.max_attempts,
            unique=f"cron/{self.name}" if self.overlap == "skip" else None,
        )

    def next_us(self, after_us: int) -> int | None:
        """Return the first tick after this time; None if there is none in the next 50 years."""
        return next(self._after(after_us), None)

    def ticks(self, after_us: int, until_us: int) -> Iterator[int]:
        """Return the ticks after the one time and up to the other, in order."""
        for tick_us in self._after(after_us):
            if tick_us > until_us:
                return
            yield tick_us

    def newest_us(self, after_us: int, until_us: int) -> int | None:
        """Return the last tick after the one time and up to the other."""
        # From the end, in growing steps: there may be a tick each second.
        span_us = 60 * MICROSECONDS
        while True:
            from_us = max(after_us, until_us - span_us)
            found = deque(self.ticks(from_us, until_us), maxlen=1)
            if found or from_us == after_us:
                return found[0] if found else None
            span_us *= 8

    def _after(self, after_us: int) -> Iterator[int]:
        start = (_EPOCH + after_us * _MICROSECOND).astimezone(ZoneInfo(self.time_zone))
        for tick in CronSim(self.expression, start):
            tick_us = (tick - _EPOCH) // _MICROSECOND
            # In the second of two repeated hours, cronsim returns a tick of the first.
            if tick_us > after_us:
                after_us = tick_us
                yield tick_us


class ScheduleLoop:
    """Enqueues the ticks of these schedules as they come due, by the engine's time.

    ``remember_seconds`` is the engine's; a schedule with a longer ``catch_up_seconds`` is refused,
    because a tick could run twice. Do not call ``step`` concurrently.
    """

    def __init__(
        self,
        schedules: Iterable[Schedule],
        enqueue: Enqueue,
        *,
        remember_seconds: float,
        states: States | None = None,
    ) -> None:
        """Take the schedules. ``states`` returns what operators have paused or skipped."""
        self._enqueue = enqueue
        self._states = states
        self._progress: dict[str, _Progress] = {}
        for schedule in schedules:
            if schedule.name in self._progress:
                raise InvalidInput("name", f"two schedules are named {schedule.name!r}")
            if schedule.catch_up_seconds > remember_seconds:
                raise InvalidInput(
                    "catch_up_seconds",
                    f"schedule {schedule.name!r} catches up on {schedule.catch_up_seconds:g} s, "
                    f"but finished jobs are remembered for {remember_seconds:g} s, so that a tick "
                    "could run twice: lower it, or raise remember_seconds",
                )
            self._progress[schedule.name] = _Progress(schedule)

    async def step(self, now_us: int) -> int | None:
        """Enqueue what came due since the last step; return when the next tick is, in µs.

        The first step looks back ``catch_up_seconds``. The result is not after ``now_us`` while
        there is more to catch up on, and None if there are no more ticks. If an enqueue fails, the
        other schedules go on, the first error is raised, and the next step retries those ticks.
        """
        due = [(progress, progress.due(now_us)) for progress in self._progress.values()]
        skipped_until = await self._skipped_until(due)
        # Concurrent calls, so that an engine can make one commit of them; one call per schedule,
        # so that a refused one does not stop the others.
        answers = await asyncio.gather(
            *(
                self._enqueue_ticks(progress.schedule, [one for one in ticks if one > until_us])
                for (progress, ticks), until_us in zip(due, skipped_until, strict=True)
            ),
            return_exceptions=True,
        )
        failures = [answer for answer in answers if answer is not None]
        for (progress, ticks), answer in zip(due, answers, strict=True):
            if answer is None:
                progress.done(ticks, now_us)
        if failures:
            raise failures[0]
        coming = [progress.next_us for progress in self._progress.values()]
        return min((next_us for next_us in coming if next_us is not None), default=None)

    async def _skipped_until(self, due: Sequence[tuple[_Progress, Sequence[int]]]) -> list[float]:
        """Return up to when operators skip the ticks of each schedule."""
        if self._states is None or not any(ticks for _progress, ticks in due):
            return [-math.inf] * len(due)
        states = await self._states()
        skipped_until: list[float] = []
        for progress, ticks in due:
            state = states.get(progress.schedule.name)
            until_us = -math.inf if state is None else state.skip_until_us
            skipped_until.append(math.inf if state is not None and state.paused else until_us)
            for tick_us in ticks:
                if tick_us <= skipped_until[-1]:
                    log.emit("schedule.left_out", job=progress.schedule.job_at(tick_us).id)
        return skipped_until

    async def _enqueue_ticks(self, schedule: Schedule, ticks: Sequence[int]) -> None:
        if not ticks:
            return
        jobs = [schedule.job_at(tick_us) for tick_us in ticks]
        # A tick that is enqueued already, or one that overlaps, is not an error.
        for job, receipt in zip(jobs, await self._enqueue(jobs, "skip"), strict=True):
            if receipt.id != job.id:
                log.emit("schedule.overlap", job=job.id, unfinished=receipt.id)


async def store_schedules(engine: Engine, schedules: Iterable[Schedule], now_us: int) -> None:
    """Store these schedules, so that operators can see and skip them; keep what they have set.

    Ticks before a schedule was stored do not count as missed.
    """
    known = await engine.schedules()
    who = Attribution("holdfast run", "the application declares it")
    for schedule in schedules:
        old = known.get(schedule.name)
        state = ScheduleState(
            schedule.expression,
            schedule.time_zone,
            schedule.task,
            schedule.queue,
            paused=old is not None and old.paused,
            skip_until_us=now_us if old is None else old.skip_until_us,
        )
        if state != old:
            await engine.set_schedule(schedule.name, state, who)


class _Progress:
    """How far the ticks of a schedule are enqueued."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.next_us: int | None = None
        self._seen_us: int | None = None
        self._limit = max(
            1, min(MAX_TICKS_PER_STEP, MAX_BYTES_PER_STEP // max(1, len(schedule.payload)))
        )

    def due(self, now_us: int) -> list[int]:
        """Return the ticks to enqueue now."""
        schedule, seen_us = self.schedule, self._seen_us
        if seen_us is not None and (self.next_us is None or self.next_us > now_us):
            return []
        after_us = now_us - int(schedule.catch_up_seconds * MICROSECONDS) - 1
        if seen_us is not None:
            after_us = max(after_us, seen_us)
        if schedule.missed == "all":
            return list(islice(schedule.ticks(after_us, now_us), self._limit))
        if schedule.missed == "skip":
            late_us = 0 if seen_us is None else int(ON_TIME_SECONDS * MICROSECONDS)
            after_us = max(after_us, now_us - late_us - 1)
        newest_us = schedule.newest_us(after_us, now_us)
        return [] if newest_us is None else [newest_us]

    def done(self, ticks: Sequence[int], now_us: int) -> None:
        """Record that these are enqueued."""
        more = self.schedule.missed == "all" and len(ticks) == self._limit
        seen_us = ticks[-1] if more else max(now_us, self._seen_us or now_us)
        self._seen_us = seen_us
        if self.next_us is None or self.next_us <= seen_us:
            self.next_us = self.schedule.next_us(seen_us)
