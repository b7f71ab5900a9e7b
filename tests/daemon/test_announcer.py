"""A daemon announces itself, executes what was sent to it once, and answers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.daemon.announcer import BEAT_SECONDS, TTL_SECONDS, Announcer, this_process
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.audit import Attribution
from holdfast.model.errors import InvalidInput, Unavailable, WorkerIdInUse
from holdfast.model.fleet import RunningAttempt, SentCommand, WorkerCommand, WorkerProcess
from holdfast.testing import VirtualClock

WHO = Attribution("ann", "rush hour")


class Announced:
    """An announcer, and what it executed and was refused."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.process = this_process("a", ["a"], 0)
        self.executed: list[SentCommand] = []
        self.refused: list[WorkerIdInUse] = []
        self.error: Exception | None = None
        self.announcer = Announcer(
            self.engine, lambda: self.process, self.execute, self.refused.append
        )

    async def execute(self, sent: SentCommand) -> str:
        self.executed.append(sent)
        if self.error is not None:
            raise self.error
        return "done"

    async def send(self, action: str = "drain") -> str:
        command = WorkerCommand(action)
        return await self.engine.command(command, [self.process.id], WHO, ttl_seconds=5.0)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_it_is_listed_with_those_that_run_for_longest():
    here = Announced()
    attempt = lambda number: RunningAttempt(f"j{number}", "t", "q", 1, number / 10, None, "")
    here.process = replace(here.process, running=tuple(map(attempt, range(40))))
    await here.announcer.beat()
    [entry] = await here.engine.workers()
    assert replace(entry.process, running=()) == replace(here.process, running=())
    assert [one.job_id for one in entry.process.running] == [f"j{n}" for n in range(39, 19, -1)]


async def test_a_command_is_executed_once_and_answered_at_once():
    here = Announced()
    await here.announcer.beat()
    command_id = await here.send()
    await here.announcer.beat()
    [answer] = await here.engine.answers(command_id)
    assert (answer.process_id, answer.code, answer.text) == (here.process.id, "", "done")
    await here.announcer.beat()
    assert [sent.by for sent in here.executed] == ["ann"]


async def test_an_answer_that_the_store_does_not_take_is_kept(monkeypatch):
    here = Announced()
    announce = here.engine.announce
    away = True

    async def broken(process: WorkerProcess, **options: Any) -> list[SentCommand]:
        if options["answers"] and away:
            raise Unavailable("the connection broke")
        return await announce(process, **options)

    monkeypatch.setattr(here.engine, "announce", broken)
    command_id = await here.send()
    with pytest.raises(Unavailable):
        await here.announcer.beat()
    away = False
    await here.announcer.beat()
    assert len(await here.engine.answers(command_id)) == 1
    assert len(here.executed) == 1


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InvalidInput("queue", "no such"), "invalid_input", "queue: no such"),
        (ValueError("secret"), "error", "ValueError"),
    ],
)
async def test_what_refuses_a_command_is_its_answer(error, code, text):
    here = Announced()
    here.error = error
    command_id = await here.send()
    await here.announcer.beat()
    [answer] = await here.engine.answers(command_id)
    assert answer.code == code
    assert text in answer.text


async def test_it_beats_by_itself_and_at_once_when_asked():
    here = Announced()
    here.announcer.start()
    try:
        await until(lambda: here.engine._fleet._entries)
        command_id = await here.send()
        began = asyncio.get_running_loop().time()
        here.announcer.announce_soon()
        await until(lambda: here.executed)
        assert asyncio.get_running_loop().time() - began < BEAT_SECONDS / 2
        await until(lambda: here.engine._fleet.answers(command_id))
    finally:
        await here.announcer.stop()


async def test_one_whose_name_was_taken_while_it_was_silent_is_told():
    here = Announced()
    await here.announcer.beat()
    here.clock.advance(TTL_SECONDS)
    other = this_process("a", ["a"], 0)
    await here.engine.announce(other, ttl_seconds=TTL_SECONDS)
    here.announcer.start()
    await until(lambda: here.refused)
    await here.announcer.stop()
    assert [entry.process.id for entry in await here.engine.workers()] == [other.id]
