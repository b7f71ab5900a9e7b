"""Cron without a leader."""

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engines.contract import EngineOptions, OnDuplicate, Receipt
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.errors import InvalidInput, StorageFull
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed
from holdfast.testing import SimDisk, VirtualClock
from holdfast.worker.schedules import MAX_TICKS_PER_STEP, Schedule, ScheduleLoop

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def us(*parts: int) -> int:
    """A moment in UTC, in microseconds."""
    return (datetime(*parts, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)  # type: ignore[arg-type,misc]


def utc(moment_us: int) -> str:
    return f"{EPOCH + timedelta(microseconds=moment_us):%m-%d %H:%M:%S}"


NOON_US = us(2027, 1, 15, 12)


def schedule(expression: str = "* * * * *", **fields: Any) -> Schedule:
    return Schedule(**{"name": "report", "task": "make", **fields, "expression": expression})


class World:
    """An engine, a clock, and a worker that finishes whatever it finds."""

    def __init__(self, now_us: int = NOON_US) -> None:
        self.clock = VirtualClock(now_us)
        self.engine = MemoryEngine(clock=self.clock)
        self.ran: list[str] = []

    def loop(self, *schedules: Schedule) -> ScheduleLoop:
        return ScheduleLoop(schedules, self.enqueue, remember_seconds=3_600)

    async def enqueue(self, jobs: Sequence[NewJob], on_duplicate: OnDuplicate) -> list[Receipt]:
        return await self.engine.enqueue(jobs, on_duplicate=on_duplicate)

    async def step(self, loop: ScheduleLoop) -> int | None:
        return await loop.step(self.clock.now_us())

    async def step_at(self, loop: ScheduleLoop, when_us: int) -> int | None:
        self.clock.advance((when_us - self.clock.now_us()) / SECOND_US)
        return await self.step(loop)

    async def work(self) -> list[str]:
        """Run everything; return the ticks that ran, as times of day."""
        claim = await self.engine.claim(queues=["default"], worker="w", limit=10_000)
        await self.engine.settle([completed(job) for job in claim.jobs])
        ids = [job.id for job in claim.jobs]
        self.ran += ids
        return [job_id.rpartition("T")[2] for job_id in ids]


async def three_loops_for_an_hour(world: World, rng: random.Random) -> Counter[str]:
    """Three processes and one that restarts all the time; how often each tick's time was run."""
    plan = schedule("*/5 * * * *", overlap="allow")
    loops = [world.loop(plan) for _ in range(3)]
    for loop in loops:
        await world.step(loop)
    await world.work()
    world.ran.clear()
    ran_at: Counter[str] = Counter()
    for _ in range(600):
        world.clock.advance(rng.uniform(1, 11))
        for loop in rng.sample(loops, rng.randint(1, 3)):
            await world.step(loop)
        if rng.random() < 0.1:
            loops[rng.randrange(3)] = world.loop(plan)
        if rng.random() < 0.5:
            await world.work()
    for loop in loops:
        await world.step(loop)
    await world.work()
    for job in await world.engine.get(list(dict.fromkeys(world.ran))):
        assert job is not None
        tick_us = job.created_at_us - job.created_at_us % (5 * MINUTE_US)
        ran_at[utc(tick_us)] += 1
    return ran_at


@pytest.mark.parametrize("seed", range(5))
def test_each_tick_runs_once_however_many_loops_there_are(seed: int) -> None:
    world = World()
    ran_at = asyncio.run(three_loops_for_an_hour(world, random.Random(seed)))
    assert set(ran_at.values()) == {1}
    assert len(ran_at) == (world.clock.now_us() - NOON_US) // (5 * MINUTE_US)
    assert len(set(world.ran)) == len(world.ran)


def test_negative_control_with_random_ids_ticks_run_more_than_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Schedule.job_at
    monkeypatch.setattr(
        Schedule, "job_at", lambda self, at: msgspec.structs.replace(real(self, at), id=None)
    )
    monkeypatch.setattr("holdfast.worker.schedules.check_id", lambda *_: "checked")
    ran_at = asyncio.run(three_loops_for_an_hour(World(), random.Random(0)))
    assert max(ran_at.values()) > 1


def test_a_tick_has_an_id_of_its_time_in_utc() -> None:
    plan = schedule("0 9 * * *", time_zone="Europe/Berlin", queue="mail", priority=3)
    tick_us = plan.next_us(NOON_US)
    assert tick_us == us(2027, 1, 16, 8)
    job = plan.job_at(tick_us)
    assert job.id == "cron/report/20270116T080000Z"
    assert (job.unique, job.queue, job.priority, job.task) == ("cron/report", "mail", 3, "make")
    assert schedule(overlap="allow").job_at(tick_us).unique is None


async def test_a_step_says_when_the_next_tick_is() -> None:
    world = World(NOON_US + 1)
    assert await world.step(world.loop()) is None
    loop = world.loop(schedule("0 * * * *", name="hourly"), schedule("*/15 * * * *", name="often"))
    assert await world.step(loop) == NOON_US + 15 * MINUTE_US
    assert sorted(await world.work()) == ["120000Z", "120000Z"]
    assert await world.step_at(loop, NOON_US + 20 * MINUTE_US) == NOON_US + 30 * MINUTE_US
    assert await world.step_at(loop, NOON_US + 21 * MINUTE_US) == NOON_US + 30 * MINUTE_US
    assert await world.work() == ["121500Z"]
    assert await world.step_at(loop, NOON_US + 30 * MINUTE_US) == NOON_US + 45 * MINUTE_US
    assert await world.work() == ["123000Z"]


async def test_a_restart_runs_nothing_again() -> None:
    disk, clock = SimDisk(), VirtualClock(NOON_US)
    plan = schedule("*/5 * * * *", overlap="allow", missed="all")
    receipts: list[Receipt] = []
    for _ in range(4):
        engine = await JournalEngine.open(
            disk, clock=clock, options=JournalOptions(segment_bytes=1 << 16, inline=True)
        )

        async def enqueue(
            jobs: Sequence[NewJob],
            on_duplicate: OnDuplicate,
            engine: JournalEngine = engine,
        ) -> list[Receipt]:
            answer = await engine.enqueue(jobs, on_duplicate=on_duplicate)
            receipts.extend(answer)
            return answer

        await ScheduleLoop([plan], enqueue, remember_seconds=3_600).step(clock.now_us())
        claim = await engine.claim(queues=["default"], worker="w", limit=100)
        await engine.settle([completed(job) for job in claim.jobs])
        await engine.close()
        clock.advance(60)
    created = [receipt.id for receipt in receipts if receipt.admission == "created"]
    assert [job_id.rpartition("T")[2] for job_id in created] == [
        "115000Z",
        "115500Z",
        "120000Z",
    ]
    assert len(receipts) > 3


@pytest.mark.parametrize(
    ("missed", "overlap", "ran"),
    [
        ("latest", "skip", ["120000Z"]),
        ("latest", "allow", ["120000Z"]),
        ("skip", "skip", []),
        ("all", "allow", ["115200Z", "115400Z", "115600Z", "115800Z", "120000Z"]),
    ],
)
async def test_what_was_missed_before_the_first_step(
    missed: str, overlap: str, ran: list[str]
) -> None:
    world = World(NOON_US + SECOND_US)
    plan = schedule("*/2 * * * *", missed=missed, overlap=overlap)
    loop = world.loop(plan)
    assert await world.step(loop) == NOON_US + 2 * MINUTE_US
    assert await world.work() == ran
    # What comes while it runs is not missed, even when it is seen a little late.
    await world.step_at(loop, NOON_US + 2 * MINUTE_US + 59 * SECOND_US)
    assert await world.work() == ["120200Z"]


def test_the_oldest_tick_to_catch_up_on_is_the_one_at_the_edge() -> None:
    async def run(catch_up_seconds: float) -> list[str]:
        world = World()
        plan = schedule(missed="all", overlap="allow", catch_up_seconds=catch_up_seconds)
        await world.step(world.loop(plan))
        return await world.work()

    assert asyncio.run(run(120)) == ["115800Z", "115900Z", "120000Z"]
    assert asyncio.run(run(119.999)) == ["115900Z", "120000Z"]
    assert asyncio.run(run(1)) == ["120000Z"]


async def test_a_tick_at_the_moment_of_the_first_step_is_not_missed() -> None:
    world = World()
    await world.step(world.loop(schedule(missed="skip")))
    assert await world.work() == ["120000Z"]


@pytest.mark.parametrize(
    ("missed", "ran"),
    [
        ("latest", ["150100Z"]),
        ("skip", []),
        ("all", ["145700Z", "145800Z", "145900Z", "150000Z", "150100Z"]),
    ],
)
async def test_a_leap_forward_is_missed_ticks(missed: str, ran: list[str]) -> None:
    world = World()
    plan = schedule(
        "0-1,57-59 * * * *", missed=missed, overlap="allow", catch_up_seconds=5 * 60 + 40
    )
    loop = world.loop(plan)
    await world.step(loop)
    await world.work()
    await world.step_at(loop, NOON_US + 182 * MINUTE_US + 30 * SECOND_US)
    assert await world.work() == ran
    assert await world.step(loop) == NOON_US + 237 * MINUTE_US


async def test_catching_up_is_bounded_for_each_step_and_loses_nothing() -> None:
    world = World()
    plan = schedule("* * * * * *", missed="all", overlap="allow", catch_up_seconds=249)
    loop = world.loop(plan)
    steps = 0
    while (next_us := await world.step(loop)) is not None and next_us <= world.clock.now_us():
        steps += 1
        assert len(await world.work()) == MAX_TICKS_PER_STEP
    assert next_us == NOON_US + SECOND_US
    assert len(await world.work()) == 50
    assert steps == 2
    assert len(set(world.ran)) == 250
    assert world.ran == sorted(world.ran)


async def test_large_payloads_make_smaller_steps() -> None:
    world = World()
    payload = b'{"text":"' + b"x" * 200_000 + b'"}'
    plan = schedule(missed="all", overlap="allow", payload=payload)
    loop = world.loop(plan)
    sizes = []
    for _ in range(3):
        await world.step(loop)
        sizes.append(len(await world.work()))
    assert sizes == [5, 5, 1]


def test_a_tick_is_dropped_while_its_predecessor_is_unfinished(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        world = World()
        loop = world.loop(schedule())
        await world.step(loop)
        claim = await world.engine.claim(queues=["default"], worker="w", limit=10)
        assert len(claim.jobs) == 1
        for minute in (1, 2):
            await world.step_at(loop, NOON_US + minute * MINUTE_US)
        assert await world.work() == []
        await world.engine.settle([completed(job) for job in claim.jobs])
        await world.step_at(loop, NOON_US + 3 * MINUTE_US)
        assert await world.work() == ["120300Z"]

    with caplog.at_level(logging.INFO, "holdfast.schedules"):
        asyncio.run(run())
    assert caplog.messages == [
        f"schedule.overlap job=cron/report/20270115T120{minute}00Z "
        "unfinished=cron/report/20270115T120000Z"
        for minute in (1, 2)
    ]


async def test_ticks_may_overlap_if_they_are_allowed_to() -> None:
    world = World()
    loop = world.loop(schedule(overlap="allow"))
    for minute in range(3):
        await world.step_at(loop, NOON_US + minute * MINUTE_US)
    assert await world.work() == ["120000Z", "120100Z", "120200Z"]


async def test_a_failed_enqueue_is_taken_up_again_and_holds_up_no_other_schedule() -> None:
    world = World()
    full = True

    async def enqueue(jobs: Sequence[NewJob], on_duplicate: OnDuplicate) -> list[Receipt]:
        if full and jobs[0].task == "big":
            raise StorageFull("no room")
        return await world.enqueue(jobs, on_duplicate)

    plans = [schedule(name="big", task="big"), schedule(name="small")]
    loop = ScheduleLoop(plans, enqueue, remember_seconds=3_600)
    for _ in range(2):
        with pytest.raises(StorageFull):
            await world.step(loop)
    assert await world.work() == ["120000Z"]
    full = False
    assert await world.step_at(loop, NOON_US + 30 * SECOND_US) == NOON_US + MINUTE_US
    assert await world.work() == ["120000Z"]
    assert world.ran == ["cron/small/20270115T120000Z", "cron/big/20270115T120000Z"]


async def test_time_that_goes_back_runs_nothing_again() -> None:
    world = World()
    loop = world.loop(schedule(overlap="allow"))
    await world.step(loop)
    await world.work()
    assert await loop.step(NOON_US - 5 * MINUTE_US) == NOON_US + MINUTE_US
    assert await world.work() == []


# --- daylight saving: Europe/Berlin goes from +1 to +2 on 28 March, and back on 31 October, 2027 --

SPRING = us(2027, 3, 27, 12), us(2027, 3, 29, 12)
AUTUMN = us(2027, 10, 30, 12), us(2027, 11, 1, 12)


@pytest.mark.parametrize(
    ("expression", "window", "ticks"),
    [
        # A time of day that spring skips comes at the end of the gap; autumn's comes once.
        ("30 2 * * *", SPRING, ["03-28 01:00:00", "03-29 00:30:00"]),
        ("30 2 * * *", AUTUMN, ["10-31 00:30:00", "11-01 01:30:00"]),
        ("0 2,3 * * *", SPRING, ["03-28 01:00:00", "03-29 00:00:00", "03-29 01:00:00"]),
        ("0 4 * * *", SPRING, ["03-28 02:00:00", "03-29 02:00:00"]),
        ("0 4 * * *", AUTUMN, ["10-31 03:00:00", "11-01 03:00:00"]),
        # Everything else follows elapsed time: none in the gap, both of the equal hours.
        ("*/30 2 * * *", SPRING, ["03-29 00:00:00", "03-29 00:30:00"]),
        (
            "*/30 2 * * *",
            AUTUMN,
            [
                *("10-31 00:00:00", "10-31 00:30:00", "10-31 01:00:00", "10-31 01:30:00"),
                *("11-01 01:00:00", "11-01 01:30:00"),
            ],
        ),
        ("0 30 2 * * *", SPRING, ["03-29 00:30:00"]),
        ("0 30 2 * * *", AUTUMN, ["10-31 00:30:00", "10-31 01:30:00", "11-01 01:30:00"]),
    ],
)
def test_daylight_saving(expression: str, window: tuple[int, int], ticks: list[str]) -> None:
    plan = schedule(expression, time_zone="Europe/Berlin")
    assert [utc(tick_us) for tick_us in plan.ticks(*window)] == ticks


@pytest.mark.parametrize(("window", "hours"), [(SPRING, 48), (AUTUMN, 48)])
def test_an_hourly_schedule_runs_every_real_hour(window: tuple[int, int], hours: int) -> None:
    ticks = list(schedule("30 * * * *", time_zone="Europe/Berlin").ticks(*window))
    assert len(ticks) == hours
    assert {b - a for a, b in pairwise(ticks)} == {60 * MINUTE_US}


def test_a_restart_between_the_two_equal_hours_does_not_run_the_tick_of_the_first() -> None:
    plan = schedule("30 2 * * *", time_zone="Europe/Berlin")
    in_the_second_us = us(2027, 10, 31, 1, 15)
    assert plan.next_us(in_the_second_us) == us(2027, 11, 1, 1, 30)


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney"]
EXPRESSIONS = [
    *("30 2 * * *", "0 2,3 * * *", "15 1-3 * * *", "*/20 * * * *", "0 */2 * * *"),
    *("45 1 * * SUN", "0 30 2 * * *", "*/15 2 * 3,10,11 *", "0 0 L * *", "*/7 10,55 1,2 * * *"),
]
CHANGES_US = [us(2027, 3, 14, 7), us(2027, 3, 28, 1), us(2027, 4, 3, 16), us(2027, 10, 31, 1)]


@settings(deadline=None, max_examples=300)
@given(
    expression=st.sampled_from(EXPRESSIONS),
    time_zone=st.sampled_from(ZONES),
    near_us=st.sampled_from(CHANGES_US),
    offsets=st.lists(st.integers(-8 * 3600 * SECOND_US, 8 * 3600 * SECOND_US), max_size=6),
)
def test_ticks_do_not_depend_on_where_one_begins(
    expression: str, time_zone: str, near_us: int, offsets: list[int]
) -> None:
    plan = schedule(expression, time_zone=time_zone)
    first_us, last_us = near_us - 9 * 3600 * SECOND_US, near_us + 9 * 3600 * SECOND_US
    whole = list(plan.ticks(first_us, last_us))
    assert whole == sorted(set(whole))
    cuts = [first_us, *sorted(near_us + offset for offset in offsets), last_us]
    parts = [list(plan.ticks(a, b)) for a, b in pairwise(cuts)]
    assert [tick_us for part in parts for tick_us in part] == whole
    for (a, b), part in zip(pairwise(cuts), parts, strict=True):
        assert plan.newest_us(a, b) == (part[-1] if part else None)


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("expression", text) for text in ("", "* * * *", "61 * * * *", "@daily", "a b c d e")),
        *(("expression", text) for text in ("0 0 31 2 *", "*/0 * * * *", "* * * * 9", None, 5)),
        *(("time_zone", name) for name in ("", "Mars/Base", "../etc/passwd", "Europe", "/UTC", 1)),
        *(("name", name) for name in ("", "a\nb", "x" * 234, None)),
        *(("task", name) for name in ("", None)),
        *(("payload", payload) for payload in (b"[]", b"{", {"a": 1}, "{}")),
        *(("queue", name) for name in ("", 7)),
        *(("priority", number) for number in (40_000, 1.5)),
        *(("max_attempts", number) for number in (0, "3")),
        *(("missed", word) for word in ("none", "", None)),
        *(("overlap", word) for word in ("queue", True)),
        *(("catch_up_seconds", number) for number in (0, -1, 0.5, float("nan"), 1e9, "600", True)),
    ],
)
def test_bad_input_is_refused_by_the_name_of_its_field(field: str, value: object) -> None:
    fields: dict[str, Any] = {"name": "n", "task": "t", "expression": "* * * * *", field: value}
    with pytest.raises(InvalidInput) as refused:
        Schedule(**fields)
    assert refused.value.field == field


def test_the_longest_name_that_fits_in_an_id() -> None:
    plan = schedule(name="x" * 233)
    assert len(plan.job_at(NOON_US).id or "") == 255


@settings(deadline=None, max_examples=300)
@given(st.lists(st.text("0123456789*/,-#LWSUNMOjan", max_size=8), min_size=4, max_size=7))
def test_any_text_is_a_schedule_or_refused(fields: list[str]) -> None:
    with contextlib.suppress(InvalidInput):
        assert schedule(" ".join(fields)).next_us(0) is not None


def test_running_all_at_once_and_never_overlapping_exclude_each_other() -> None:
    with pytest.raises(InvalidInput, match='"all" needs overlap="allow"') as refused:
        schedule(missed="all")
    assert refused.value.field == "missed"


def test_a_loop_refuses_to_catch_up_on_more_than_the_engine_remembers() -> None:
    world = World()
    plan = schedule(catch_up_seconds=601)
    remembered = EngineOptions(remember_seconds=600).remember_seconds
    with pytest.raises(InvalidInput, match="remember_seconds") as refused:
        ScheduleLoop([plan], world.enqueue, remember_seconds=remembered)
    assert refused.value.field == "catch_up_seconds"
    ScheduleLoop([plan], world.enqueue, remember_seconds=601)


def test_two_schedules_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two schedules are named 'report'"):
        World().loop(schedule(), schedule("0 0 * * *"))
