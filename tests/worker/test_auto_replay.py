"""Auto-replay: which dead letters go back by themselves, when, how fast, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast.engines.contract import Engine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model import auto_replay as rules
from holdfast.model.actions import ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import InvalidInput
from holdfast.model.failure import Failure
from holdfast.model.flags import auto_replay_on
from holdfast.model.job import MICROSECONDS, Job, NewJob, State
from holdfast.model.operation import NewOperation, Operation, Phase
from holdfast.model.outage import DependencyReport
from holdfast.model.outcome import completed, dead
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter
from holdfast.testing import VirtualClock
from holdfast.testing.disk import SimDisk
from holdfast.worker.auto_replay import INTERVAL_SECONDS, AutoReplayLoop
from holdfast.worker.operation_loop import OperationLoop

ANN = Attribution("ann", "a test")
QUEUE = "billing@api"
HOUR = 3_600


class World:
    """A store in virtual time, with a dependency ``api`` and the loops of one or two processes."""

    engine: Engine
    other: Engine
    """The engine of the second process: the same one, unless it is on a server."""

    def __init__(self, kind: str, url: str) -> None:
        self.clock = VirtualClock()
        self._kind = kind
        self._url = url

    async def __aenter__(self) -> World:
        if self._kind == "postgresql":
            self.engine = await PostgresEngine.open(self._url, clock=self.clock)
            self.other = await PostgresEngine.open(self._url, clock=self.clock)
        elif self._kind == "journal":
            self.engine = self.other = await JournalEngine.open(SimDisk(), clock=self.clock)
        else:
            self.engine = self.other = MemoryEngine(clock=self.clock)
        self._loops = [AutoReplayLoop(self.engine), AutoReplayLoop(self.other)]
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.engine.close()
        await self.other.close()

    async def run(self, count: int, queue: str, failure: Failure | None) -> None:
        """Enqueue jobs and let them end: completed, or dead of this failure."""
        await self.engine.enqueue([NewJob(task="t", queue=queue) for _n in range(count)])
        assert len(await self.end(queue, failure, count)) == count

    async def end(self, queue: str, failure: Failure | None, count: int) -> list[Job]:
        """Let pending jobs end."""
        taken = (await self.engine.claim(queues=[queue], worker="w", limit=count)).jobs
        await self.engine.settle(
            [completed(job) if failure is None else dead(job, failure) for job in taken]
        )
        return list(taken)

    async def kill(self, count: int = 3, reason: str = "upstream_5xx", queue: str = QUEUE) -> None:
        """Have jobs die, and let a moment pass."""
        await self.run(count, queue, Failure.of(reason, "no"))
        self.clock.advance(1)

    async def go_out(self) -> None:
        """Let the dependency have an outage."""
        failure = Failure.of("upstream_5xx", "503")
        await self.engine.report_outage([DependencyReport("api", tripped=True, failure=failure)])

    async def recover(self) -> None:
        """Let probes succeed until the outage has ended."""
        for _step in range(100):
            self.clock.advance(2)
            await self.engine.enqueue([NewJob(task="t", queue="probe@api")])
            taken = await self.end("probe@api", None, 1)
            last_us = max((job.claimed_at_us for job in taken), default=0)
            report = DependencyReport("api", successes=len(taken), claimed_at_us=last_us)
            if not (await self.engine.report_outage([report])).outages:
                return
        raise AssertionError("the outage does not end")

    async def work(self, queue: str = QUEUE, seconds: float = 0.0) -> None:
        """Complete a job and sample it, and let time pass."""
        self.clock.advance(max(35.0, seconds - 15))
        await self.engine.take_sample()
        await self.run(1, queue, None)
        self.clock.advance(15)
        await self.engine.take_sample()

    async def look(self) -> list[Operation]:
        """Let both processes look at once; return all operations, the newest first."""
        now_us = self.clock.now_us()
        await asyncio.gather(*(loop.step(now_us) for loop in self._loops))
        return await self.operations()

    async def operations(self) -> list[Operation]:
        found = await self.engine.operations(limit=1_000)
        return [one for one in found if one.by == "holdfast"]

    async def carry_out(self, seconds: int, failure: Failure | None = None) -> None:
        """Let operations go on, and replayed jobs end."""
        for _second in range(seconds):
            await OperationLoop(self.engine).step(self.clock.now_us())
            await self.end(QUEUE, failure, 100)
            self.clock.advance(1)

    async def states(self) -> dict[State, int]:
        jobs = (await self.engine.find(Filter(queues=(QUEUE,)), limit=1_000)).jobs
        return {state: n for state in State if (n := sum(job.state is state for job in jobs))}

    async def replays(self) -> list[int]:
        """Return how often each letter was replayed that was."""
        jobs = (await self.engine.find(Filter(queues=(QUEUE,)), limit=1_000)).jobs
        return sorted(job.replays.count for job in jobs if job.replays is not None)


@pytest.fixture(params=["memory", "journal", "postgresql"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A store on each engine; a test enters it."""
    if request.param == "postgresql":
        with request.getfixturevalue("server18").fresh() as url:
            yield World(request.param, url)
    else:
        yield World(request.param, "")


# --- after an outage ---------------------------------------------------------------------------


async def test_what_died_of_an_outage_goes_back_once_a_minute_after_its_end(world: World) -> None:
    async with world:
        await world.kill(3)
        await world.go_out()
        world.clock.advance(120)
        assert await world.look() == [], "it is out"
        await world.recover()
        assert await world.look() == []
        world.clock.advance(58)
        assert await world.look() == [], "it has not worked for a minute"
        world.clock.advance(2)
        [operation] = await world.look()
        assert (operation.by, operation.why) == (
            "holdfast",
            "auto-replay: api works again after an outage",
        )
        await world.carry_out(2)
        assert await world.states() == {State.COMPLETED: 3}
        for _look in range(3):
            world.clock.advance(INTERVAL_SECONDS)
            assert len(await world.look()) == 1
        assert (await world.operations())[0].outcomes.completed == 3


async def test_once_for_each_outage(world: World) -> None:
    async with world:
        await world.kill(1)
        for outage in (1, 2):
            await world.go_out()
            await world.recover()
            world.clock.advance(61)
            assert len(await world.look()) == outage
            await world.carry_out(2, Failure.of("timeout", "again"))
            world.clock.advance(2 * HOUR)
            await world.work()
            assert len(await world.look()) == outage, "only another outage brings it back"
            if outage == 1:  # it dies of the next one, shortly before that is noticed
                await world.engine.start_operation(
                    NewOperation(id="by-ann", action=ReplayJobs(), wanted=Filter()), ANN
                )
                await world.carry_out(1, Failure.of("timeout", "again"))
        assert await world.replays() == [3]


async def test_not_what_died_long_before_or_after(world: World) -> None:
    async with world:
        await world.kill(1)
        world.clock.advance(rules.BEFORE_OUTAGE_SECONDS + 1)
        await world.go_out()
        await world.recover()
        await world.kill(1)
        world.clock.advance(61)
        assert await world.look() == []


async def test_not_while_letters_of_it_go_on_dying(world: World) -> None:
    async with world:
        await world.kill(1)
        await world.go_out()
        await world.recover()
        world.clock.advance(50)
        await world.kill(1)
        world.clock.advance(30)
        assert await world.look() == []
        world.clock.advance(31)
        assert len(await world.look()) == 1


async def test_an_outage_that_a_person_ended_proves_nothing(world: World) -> None:
    async with world:
        await world.kill(3)
        await world.go_out()
        await world.engine.set_outage("api", ANN, on=False)
        world.clock.advance(120)
        assert await world.look() == []
        await world.work()
        assert len(await world.look()) == 1


async def test_a_queue_that_was_paused_follows_when_it_is_resumed(world: World) -> None:
    async with world:
        await world.kill(2)
        await world.engine.set_policy(QUEUE, QueuePolicy(paused=True), ANN)
        await world.go_out()
        await world.recover()
        world.clock.advance(61)
        assert await world.look() == []
        await world.engine.set_policy(QUEUE, QueuePolicy(), ANN)
        assert len(await world.look()) == 1


# --- without an outage -------------------------------------------------------------------------


async def test_without_an_outage_a_letter_goes_back_once_ever_when_its_queue_works(
    world: World,
) -> None:
    async with world:
        await world.kill(3)
        world.clock.advance(301)
        assert await world.look() == [], "nothing tells that it works"
        await world.work()
        assert len(await world.look()) == 1
        await world.carry_out(2, Failure.of("upstream_5xx", "again"))
        assert await world.states() == {State.DEAD: 3, State.COMPLETED: 1}
        for _hour in range(3):
            await world.work(seconds=HOUR)
            assert len(await world.look()) == 1
        assert await world.replays() == [1, 1, 1]


async def test_but_not_before_five_minutes_without_such_a_death(world: World) -> None:
    async with world:
        await world.kill(3)
        await world.work(seconds=298)
        assert await world.look() == []
        world.clock.advance(3)
        assert len(await world.look()) == 1


async def test_what_died_since_is_the_next_operation(world: World) -> None:
    async with world:
        for number in (1, 2):
            await world.kill(2)
            await world.work(seconds=301)
            assert len(await world.look()) == number
            await world.carry_out(3)
            assert len(await world.look()) == number
        assert await world.states() == {State.COMPLETED: 6}


async def test_letters_older_than_a_day_are_left_to_people(world: World) -> None:
    async with world:
        await world.kill(3)
        world.clock.advance(rules.MAX_AGE_SECONDS)
        await world.work()
        assert await world.look() == []


@pytest.mark.parametrize("reason", ["upstream_4xx", "mapping_error", "unexpected", "worker_lost"])
async def test_deterministic_and_unknown_failures_never(world: World, reason: str) -> None:
    async with world:
        await world.kill(1)
        await world.go_out()
        await world.recover()
        await world.kill(3, reason)
        for queue in (QUEUE, "probe@api"):
            await world.work(queue, seconds=400)
        [operation] = await world.look()
        await world.carry_out(3)
        world.clock.advance(400)
        await world.look()
        await world.carry_out(3)
        assert await world.states() == {State.DEAD: 3, State.COMPLETED: 2}
        assert operation.wanted.error_reasons == ("upstream_5xx",)


async def test_a_paused_queue_never(world: World) -> None:
    async with world:
        await world.kill(3)
        await world.work(seconds=301)
        await world.engine.set_policy(QUEUE, QueuePolicy(paused=True), ANN)
        assert await world.look() == []


# --- how fast, and how far ---------------------------------------------------------------------


async def test_ten_a_second_and_of_a_rate_limit_one(world: World) -> None:
    async with world:
        await world.engine.set_flag("auto_replay/rate_limited", ANN, on=True)
        await world.kill(45)
        await world.kill(45, "rate_limited")
        await world.work(seconds=301)
        operations = {one.wanted.error_reasons: one.id for one in await world.look()}
        await world.carry_out(4)
        acted = {
            reasons: (await world.engine.operation(name)).acted
            for reasons, name in operations.items()
        }
        assert 30 <= acted["upstream_5xx",] <= 40
        assert 3 <= acted["rate_limited",] <= 4


async def test_it_aborts_itself_and_leaves_the_rest_to_people(world: World) -> None:
    async with world:
        await world.kill(100)
        await world.work(seconds=301)
        await world.look()
        await world.carry_out(10, Failure.of("upstream_5xx", "again"))
        operation, *others = await world.operations()
        assert not others
        assert operation.phase is Phase.ABORTED
        assert "failed again" in operation.note
        assert 20 <= operation.acted <= 40
        for _hour in range(3):
            await world.work(seconds=HOUR)
            assert len(await world.look()) == 1, "what it left is not taken up again"
        assert sum(await world.replays()) == operation.acted


async def test_letters_that_are_being_replayed_are_left_to_that_operation(world: World) -> None:
    async with world:
        await world.kill(100)
        await world.work(seconds=301)
        await world.look()
        await world.carry_out(5)
        assert len(await world.look()) == 1
        await world.carry_out(10)
        assert len(await world.look()) == 1
        assert await world.states() == {State.COMPLETED: 101}
        assert await world.replays() == 100 * [1]


async def test_control_ids_that_follow_from_the_letters_left_start_operations_over_and_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "is_auto_replay", lambda _operation: False)
    count = iter(range(1_000))
    monkeypatch.setattr(rules, "_name", lambda prefix, *_parts: f"{prefix}{next(count)}")
    with pytest.raises(AssertionError):
        await test_it_aborts_itself_and_leaves_the_rest_to_people(world)


# --- flags -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flag", ["auto_replay", f"auto_replay/{QUEUE}", "auto_replay/api", "auto_replay/upstream_5xx"]
)
async def test_a_flag_switches_it_off(world: World, flag: str) -> None:
    async with world:
        await world.kill(3)
        await world.go_out()
        await world.recover()
        await world.work(seconds=400)
        await world.engine.set_flag(flag, ANN, on=False)
        assert await world.look() == []
        await world.engine.set_flag(flag, ANN, on=None)
        assert len(await world.look()) == 1


async def test_a_flag_aborts_what_runs(world: World) -> None:
    async with world:
        await world.kill(100)
        await world.work(seconds=301)
        await world.look()
        await world.carry_out(2)
        await world.engine.set_flag("auto_replay", ANN, on=False)
        [operation] = await world.look()
        assert (operation.phase, operation.note) == (Phase.ABORTED, "aborted by holdfast")
        await world.carry_out(5)
        assert (await world.operations())[0].acted == operation.acted < 40
        last = (await world.engine.audited(limit=100))[-2:]
        assert [one.entry.action for one in last] == ["operation.abort", "operation.aborted"]


async def test_a_rate_limit_has_its_own_switch(world: World) -> None:
    async with world:
        await world.kill(3, "rate_limited")
        await world.work(seconds=301)
        assert await world.look() == []
        await world.engine.set_flag("auto_replay/rate_limited", ANN, on=True)
        assert len(await world.look()) == 1


@pytest.mark.parametrize(
    ("flags", "reason", "on"),
    [
        ([], "timeout", True),
        (["auto_replay=off"], "timeout", False),
        (["auto_replay=off", "auto_replay/mail=on"], "timeout", True),
        (["auto_replay=off", "auto_replay/timeout=on"], "timeout", True),
        (["auto_replay/mail=on", "auto_replay/timeout=off"], "timeout", False),
        (["auto_replay/mail=off", "auto_replay/timeout=on"], "timeout", False),
        (["auto_replay/other=off"], "timeout", True),
        ([], "rate_limited", False),
        (["auto_replay=on"], "rate_limited", False),
        (["auto_replay/mail=on"], "rate_limited", False),
        (["auto_replay/rate_limited=on"], "rate_limited", True),
        (["auto_replay/rate_limited=on", "auto_replay/mail=off"], "rate_limited", False),
    ],
)
def test_what_flags_mean_together(flags: list[str], reason: str, on: bool) -> None:
    found = {text.partition("=")[0]: text.endswith("=on") for text in flags}
    assert auto_replay_on(found, reason, "mail") is on


# --- the loop ----------------------------------------------------------------------------------


async def test_the_audit_says_that_holdfast_did_it(world: World) -> None:
    async with world:
        await world.kill(3)
        await world.work(seconds=301)
        [operation] = await world.look()
        await world.carry_out(3)
        found = [one.entry for one in await world.engine.audited(limit=100)]
        assert [(one.action, one.user_id) for one in found] == [
            ("job.replay", "holdfast"),
            ("operation.completed", "holdfast"),
        ]
        assert operation.id in found[0].changes
        assert found[0].reason == operation.why


async def test_it_comes_back_every_fifteen_seconds(world: World) -> None:
    async with world:
        now_us = world.clock.now_us()
        next_us = await AutoReplayLoop(world.engine).step(now_us)
        assert next_us >= now_us + INTERVAL_SECONDS * MICROSECONDS


async def test_what_cannot_be_started_now_is_started_later(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with world:
        await world.kill(3)
        await world.work(seconds=301)

        async def refuse(*_arguments: object) -> Operation:
            raise InvalidInput("operation", "100 operations run already: wait, or abort some")

        with monkeypatch.context() as patched:
            for engine in (world.engine, world.other):
                patched.setattr(engine, "start_operation", refuse)
            assert await world.look() == []
        assert "auto_replay.refused" in caplog.text
        assert len(await world.look()) == 1
