"""The registry of processes, commands to them, and reading leases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast.engines.contract import Renewal
from holdfast.model.access import Caller
from holdfast.model.actions import CancelJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import AccessDenied, InvalidInput, LeaseLost, WorkerIdInUse
from holdfast.model.fleet import (
    CommandAnswer,
    ProcessSlots,
    RunningAttempt,
    WorkerCommand,
    WorkerProcess,
)
from holdfast.model.job import MICROSECONDS
from holdfast.model.outcome import completed

from .fixture import OPERATION, EngineFixture, Suite, named, on_engine

TTL_SECONDS = 4.0
ENTRY = AuditEntry("worker.drain", "worker", "a", "ann", reason="the mail server is back")
AUDITED = Attribution(OPERATION.by, OPERATION.why, (ENTRY,))
DRAIN = WorkerCommand("drain")


def worker_process(process_id: str = "life-1", name: str = "a", **fields: object) -> WorkerProcess:
    """Return a process with defaults."""
    make: Callable[..., WorkerProcess] = WorkerProcess
    defaults: dict[str, object] = {
        "host": "east",
        "pid": 7,
        "version": "1.0",
        "started_at_us": 1,
        "slots": {"": 3},
        "processes": {name: ProcessSlots(3, 1, draining=False)},
    }
    return make(id=process_id, name=name, **{**defaults, **fields})


class RegistryRules(Suite):
    """Who announces itself is listed while it is live, and no name is used twice."""

    @on_engine
    async def test_who_announces_itself_is_listed_as_it_is(self, fixture: EngineFixture) -> None:
        """Every field comes back, and when the process was last seen."""
        engine = fixture.engine
        assert await engine.workers() == []
        first = worker_process(
            machine="kernel/pids",
            started_ticks=99,
            pids={"a": (7, 99), "a-2": (8, 100)},
            queues=("mail", "slow"),
            tasks=("send",),
            task_queues=("mail",),
            metrics="http://127.0.0.1:9090/metrics",
            running=(RunningAttempt("j1", "send", "mail", 2, 1.5, 0.5, "half"),),
            totals={"queue_jobs_created": 4.0},
            processes={"a": ProcessSlots(3, 1, draining=True), "a-2": None},
            draining=True,
        )
        assert await engine.announce(first, ttl_seconds=TTL_SECONDS) == []
        second = worker_process("life-2", "b", queues=None)
        await engine.announce(second, ttl_seconds=TTL_SECONDS)
        found = await engine.workers()
        assert [entry.process for entry in found] == [first, second]
        assert [entry.seen_at_us for entry in found] == [fixture.clock.now_us()] * 2
        assert all(entry.live for entry in found)

    @on_engine
    async def test_the_last_announcement_counts(self, fixture: EngineFixture) -> None:
        """A process that announces itself again is listed once, as it is now."""
        engine = fixture.engine
        await engine.announce(worker_process(), ttl_seconds=TTL_SECONDS)
        fixture.clock.advance(TTL_SECONDS - 1)
        now = worker_process(slots={"": 9}, draining=True)
        await engine.announce(now, ttl_seconds=TTL_SECONDS)
        fixture.clock.advance(TTL_SECONDS - 1)
        [entry] = await engine.workers()
        assert entry.process == now
        assert entry.seen_at_us == fixture.clock.now_us() - (TTL_SECONDS - 1) * MICROSECONDS

    @on_engine
    async def test_who_falls_silent_is_not_live(self, fixture: EngineFixture) -> None:
        """It can be looked up for a while, and comes back with its next announcement."""
        engine = fixture.engine
        await engine.announce(worker_process(), ttl_seconds=TTL_SECONDS)
        fixture.clock.advance(TTL_SECONDS)
        assert await engine.workers() == []
        [entry] = await engine.workers(gone=True)
        assert (entry.process.id, entry.live) == ("life-1", False)
        await engine.announce(worker_process(), ttl_seconds=TTL_SECONDS)
        assert [entry.live for entry in await engine.workers()] == [True]
        fixture.clock.advance(3 * 3_600)
        assert await engine.workers(gone=True) == []

    @on_engine
    async def test_who_departs_is_gone_at_once(self, fixture: EngineFixture) -> None:
        """And departing twice is no error."""
        engine = fixture.engine
        await engine.announce(worker_process(), ttl_seconds=TTL_SECONDS)
        await engine.depart("life-1")
        await engine.depart("life-1")
        assert await engine.workers(gone=True) == []

    @on_engine
    async def test_a_second_live_process_of_a_name_is_refused(self, fixture: EngineFixture) -> None:
        """Of any of its names; the error says where the live one is. A dead one does not count."""
        engine = fixture.engine
        both = {"a": None, "a-2": None}
        await engine.announce(worker_process(processes=both), ttl_seconds=TTL_SECONDS)
        for name in ("a", "a-2"):
            with pytest.raises(WorkerIdInUse, match="process 7 on east") as refused:
                await engine.announce(worker_process("life-2", name), ttl_seconds=TTL_SECONDS)
            error = refused.value
            assert (error.name, error.host, error.pid) == ("a", "east", 7)
        assert [entry.process.id for entry in await engine.workers(gone=True)] == ["life-1"]
        await engine.announce(worker_process("life-3", "b"), ttl_seconds=TTL_SECONDS)
        fixture.clock.advance(TTL_SECONDS)
        await engine.announce(worker_process("life-2"), ttl_seconds=TTL_SECONDS)
        with pytest.raises(WorkerIdInUse):  # the name is another's now
            await engine.announce(worker_process(processes=both), ttl_seconds=TTL_SECONDS)
        await engine.depart("life-2")
        await engine.announce(worker_process(processes=both), ttl_seconds=TTL_SECONDS)

    @on_engine
    async def test_of_two_that_start_at_once_one_gets_the_name(
        self, fixture: EngineFixture
    ) -> None:
        """The other one is refused."""
        lives = [worker_process(f"life-{number}") for number in range(4)]
        done = await asyncio.gather(
            *(fixture.engine.announce(one, ttl_seconds=TTL_SECONDS) for one in lives),
            return_exceptions=True,
        )
        assert sum(isinstance(one, WorkerIdInUse) for one in done) == 3
        assert len(await fixture.engine.workers()) == 1

    @on_engine
    async def test_what_is_wrong_is_refused(self, fixture: EngineFixture) -> None:
        """Nothing is entered."""
        engine = fixture.engine
        wrong = [
            worker_process(""),
            worker_process(name="a\n", processes={"a": None}),
            worker_process(host=""),
            worker_process(processes={}),
            worker_process(processes={"": None}),
        ]
        for process in wrong:
            with pytest.raises(InvalidInput):
                await engine.announce(process, ttl_seconds=TTL_SECONDS)
        for ttl_seconds in (0, -1.0, float("nan"), 1e9):
            with pytest.raises(InvalidInput):
                await engine.announce(worker_process(), ttl_seconds=ttl_seconds)
        with pytest.raises(InvalidInput):
            await engine.depart("")
        assert await engine.workers(gone=True) == []


class CommandRules(Suite):
    """Commands reach the processes that they are for, once, with who sent them and why."""

    @on_engine
    async def test_a_command_reaches_those_it_is_for(self, fixture: EngineFixture) -> None:
        """Until they answer; then the answer can be read."""
        engine = fixture.engine
        first, second = worker_process(), worker_process("life-2", "b")
        for process in (first, second):
            await engine.announce(process, ttl_seconds=TTL_SECONDS)
        resize = WorkerCommand("resize", slots=5, queue="mail")
        command_id = await engine.command(resize, ["life-1"], AUDITED, ttl_seconds=5.0)
        assert await engine.announce(second, ttl_seconds=TTL_SECONDS) == []
        for _time in range(2):
            [sent] = await engine.announce(first, ttl_seconds=TTL_SECONDS)
            assert (sent.id, sent.command) == (command_id, resize)
            assert (sent.by, sent.why) == (OPERATION.by, OPERATION.why)
        assert await engine.answers(command_id) == []
        answer = CommandAnswer(command_id, "life-1", "invalid_input", "no such queue")
        assert await engine.announce(first, ttl_seconds=TTL_SECONDS, answers=[answer]) == []
        assert await engine.announce(first, ttl_seconds=TTL_SECONDS) == []
        assert await engine.answers(command_id) == [answer]

    @on_engine
    async def test_commands_come_in_their_order(self, fixture: EngineFixture) -> None:
        """And each process answers for itself."""
        engine = fixture.engine
        both = ["life-1", "life-2"]
        actions = ["drain", "resume", "reload"]
        sent = [
            await engine.command(WorkerCommand(action), both, AUDITED, ttl_seconds=5.0)
            for action in actions
        ]
        for process_id, name in zip(both, "ab", strict=True):
            process = worker_process(process_id, name)
            got = await engine.announce(process, ttl_seconds=TTL_SECONDS)
            assert [one.command.action for one in got] == actions
            answer = CommandAnswer(sent[1], process_id)
            left = await engine.announce(process, ttl_seconds=TTL_SECONDS, answers=[answer])
            assert [one.id for one in left] == [sent[0], sent[2]]
        assert [one.process_id for one in await engine.answers(sent[1])] == both

    @on_engine
    async def test_a_command_that_nobody_fetched_in_time_is_dropped(
        self, fixture: EngineFixture
    ) -> None:
        """Who sent it has given up: nothing may happen later."""
        engine = fixture.engine
        command_id = await engine.command(DRAIN, ["life-1"], AUDITED, ttl_seconds=5.0)
        fixture.clock.advance(5.0)
        assert await engine.announce(worker_process(), ttl_seconds=TTL_SECONDS) == []
        late = CommandAnswer(command_id, "life-1")  # fetched before, and done since
        await engine.announce(worker_process(), ttl_seconds=TTL_SECONDS, answers=[late])
        assert await engine.answers(command_id) == [late]

    @on_engine
    async def test_answers_of_others_do_not_count(self, fixture: EngineFixture) -> None:
        """Nor do those to a command that does not exist."""
        engine = fixture.engine
        command_id = await engine.command(DRAIN, ["life-1"], AUDITED, ttl_seconds=5.0)
        for process_id, answered in (("life-2", command_id), ("life-1", "unknown")):
            answer = CommandAnswer(answered, process_id)
            process = worker_process(process_id, process_id)
            await engine.announce(process, ttl_seconds=TTL_SECONDS, answers=[answer])
        assert await engine.answers(command_id) == []
        assert await engine.answers("unknown") == []

    @on_engine
    async def test_a_command_is_audited(self, fixture: EngineFixture) -> None:
        """With who sent it and why."""
        await fixture.engine.command(DRAIN, ["life-1"], AUDITED, ttl_seconds=5.0)
        assert [record.entry for record in await fixture.engine.audited()] == [ENTRY]

    @on_engine
    async def test_what_is_wrong_with_a_command_is_refused(self, fixture: EngineFixture) -> None:
        """Nothing is sent, and nothing is in the audit."""
        engine = fixture.engine
        wrong = [
            WorkerCommand("explode"),
            WorkerCommand("resize", slots=0),
            WorkerCommand("resize", slots=10_001),
            WorkerCommand("resize", slots=1, queue="\n"),
            WorkerCommand("log_level", level="loud"),
        ]
        for command in wrong:
            with pytest.raises(InvalidInput):
                await engine.command(command, ["life-1"], AUDITED, ttl_seconds=5.0)
        for process_ids, ttl_seconds in (([], 5.0), ([""], 5.0), (["life-1"], 0.0)):
            with pytest.raises(InvalidInput):
                await engine.command(DRAIN, process_ids, AUDITED, ttl_seconds=ttl_seconds)
        with pytest.raises(InvalidInput):
            await engine.command(DRAIN, ["life-1"], Attribution("", "why"), ttl_seconds=5.0)
        caller = Caller("one tenant")
        with pytest.raises(AccessDenied):
            await engine.command(DRAIN, ["life-1"], AUDITED, ttl_seconds=5.0, caller=caller)
        assert await engine.announce(worker_process(), ttl_seconds=TTL_SECONDS) == []
        assert await engine.audited() == []


class LeaseReadingRules(Suite):
    """A lease can be read without renewing it."""

    @on_engine
    async def test_leases_are_read_as_they_are(self, fixture: EngineFixture) -> None:
        """When they end, and whether cancellation was requested; nothing is renewed."""
        engine = fixture.engine
        await fixture.put("a", "b")
        jobs = await fixture.take(2, lease_seconds=30.0)
        fixture.clock.advance(10)
        await engine.operate(CancelJobs(), named("b"), OPERATION)
        until_us = jobs[0].lease_until_us
        assert await engine.leases(jobs) == [Renewal(until_us), Renewal(until_us, True)]  # noqa: FBT003
        assert (await fixture.job("a")).lease_until_us == until_us
        assert await engine.leases([]) == []

    @on_engine
    async def test_a_lost_lease_is_read_as_lost(self, fixture: EngineFixture) -> None:
        """As by ``extend``, and without counting as a refusal."""
        engine = fixture.engine
        await fixture.put("a", "b")
        first, second = await fixture.take(2)
        await fixture.settle(completed(first))
        gone, held = await engine.leases([first, second])
        assert isinstance(gone, LeaseLost)
        assert (gone.job_id, gone.token) == (first.id, first.token)
        assert isinstance(held, Renewal)
        assert all(
            isinstance(one, LeaseLost)
            for one in await engine.leases([second], caller=Caller("another"))
        )
        assert engine.leases_refused == 0
