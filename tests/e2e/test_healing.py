"""A dependency answers 400 for one field, 429 in a burst and 503 for ten minutes.

What may pass heals by itself; the rest is found, tried, edited, tried again and replayed by five
commands. With the default settings. The store's time is virtual; the web application, the worker
with its loops, the commands and the store are real.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from holdfast.cli import store_access
from holdfast.cli.main import main
from holdfast.daemon.worker_settings import worker_options
from holdfast.engines.contract import Engine
from holdfast.model import outage as outage_rules
from holdfast.model.audit import Attribution
from holdfast.model.failure import FailureClass
from holdfast.model.job import MICROSECONDS, Job, State
from holdfast.model.outage import OutagePhase, dependency_of
from holdfast.model.search import Filter
from holdfast.operations.operations import Operations
from holdfast.settings import Settings
from holdfast.testing.clock import START_US, VirtualClock
from holdfast.worker.auto_replay import AutoReplayLoop
from holdfast.worker.loops import Loop, SampleLoop
from holdfast.worker.operation_loop import OperationLoop
from holdfast.worker.outage_loop import OutageLoop
from holdfast.worker.worker import Worker
from tests.engines.postgres.servers import Databases

from .healing_shop import OUTAGE_SECONDS, Payments, app, open_payments, web
from .test_first_week import store

BAD_ORDERS = 8
WAVE = 30
WAVES = {0: "early", 22: "burst", 61: "outage", 300: "during", 655: "late", 900: "after"}
"""When orders come, in seconds."""
RECEIPTS = 12
"""Their one attempt is as the outage begins."""
END_SECONDS = 1_500.0
APP = ("--app", "tests.e2e.healing_shop:app")
WHO = ("--by", "ann", "--reason", "UK is no country code")


class Story:
    """The shop, its worker and its loops, and the time."""

    def __init__(self, engine: Engine, clock: VirtualClock, settings: Settings) -> None:
        self.engine = engine
        self.clock = clock
        self.payments: Payments = open_payments(clock)
        options = replace(worker_options(settings), poll_interval_seconds=0.01)
        self.worker = Worker(engine, app.registry, "w", options)
        self._loops: dict[Loop, int] = dict.fromkeys(
            (
                OutageLoop(engine, self.worker.outage_detector, app.registry.health_checks),
                OperationLoop(engine),
                SampleLoop(engine),
                AutoReplayLoop(engine),
            ),
            0,
        )
        self._waves = dict(WAVES)
        self.died: set[str] = set()
        """The ids of all jobs that were seen dead of something that may pass."""

    @property
    def seconds(self) -> float:
        return (self.clock.now_us() - START_US) / MICROSECONDS

    async def jobs(self, *states: State) -> list[Job]:
        return (await self.engine.find(Filter(states=states), limit=1_000)).jobs

    async def transient(self) -> list[Job]:
        wanted = Filter(states=(State.DEAD,), classes=(FailureClass.TRANSIENT,))
        return (await self.engine.find(wanted, limit=1_000)).jobs

    async def live_until(self, done: Callable[[], Awaitable[bool]]) -> None:
        """Let time pass, from one thing that happens to the next."""
        async with asyncio.timeout(120):
            while not await done():
                await self._order()
                await self._step()
                if await self._busy():  # jobs run in real time
                    await asyncio.sleep(0.003)
                else:
                    self.clock.advance(1.0 if await self._lively() else 5.0)

    async def _order(self) -> None:
        for at_seconds, name in list(self._waves.items()):
            if self.seconds < at_seconds:
                continue
            del self._waves[at_seconds]
            browser = httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://shop")
            async with browser:
                for number in range(RECEIPTS if name == "outage" else 0):
                    await browser.post(f"/receipts/{name}-{number}")
                for number in range(WAVE):
                    bad = name == "early" and number < BAD_ORDERS
                    order = {"country": "UK" if bad else "DE"}
                    answer = await browser.post(f"/orders/{name}-{number}", params=order)
                    assert answer.status_code == 202
            await self.worker.look_for_queues()

    async def _step(self) -> None:
        now_us = self.clock.now_us()
        for loop, due_us in self._loops.items():
            if now_us >= due_us:
                self._loops[loop] = await loop.step(now_us) or now_us
        self.died |= {job.id for job in await self.transient()}

    async def _busy(self) -> bool:
        """Whether jobs run, or may be claimed now."""
        now_us = self.clock.now_us()
        held = {
            outage.dependency
            for outage in await self.engine.outages()
            if not outage_rules.room(outage, now_us)
        }
        return any(
            job.state is State.IN_FLIGHT
            or (job.run_at_us <= now_us and dependency_of(job.queue) not in held)
            for job in await self.jobs(State.PENDING, State.IN_FLIGHT)
        )

    async def _lively(self) -> bool:
        """Whether something goes on that does not wait for long."""
        outages = await self.engine.outages()
        recovering = any(one.phase is OutagePhase.RECOVERING for one in outages)
        near = any(0 <= at - self.seconds < 5 for at in self._waves)
        return recovering or near or bool(await self.engine.operations(running=True))

    async def healed(self) -> bool:
        """Whether all that happens by itself has happened."""
        if self._waves or self.seconds < END_SECONDS:
            assert self.seconds < 2 * END_SECONDS
            return False
        return not await self.jobs(State.PENDING, State.IN_FLIGHT)

    async def command(self, *words: object, code: int = 0) -> Result:
        """Run a command, while time goes on."""
        arguments = [str(word) for word in ("--store", "./unused", *words)]
        running = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, main, arguments))

        async def done() -> bool:
            return running.done()

        await self.live_until(done)
        result = await running
        assert result.exit_code == code, (words, result.output, result.exception)
        return result

    async def json(self, *words: object) -> Any:
        return json.loads((await self.command(*words, "--json")).stdout)


@asynccontextmanager
async def living(
    kind: str, databases: Databases, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Story]:
    """Open the shop on a store that commands reach as well."""
    clock = VirtualClock()
    loop = asyncio.get_running_loop()
    async with store(kind, clock, databases) as engine:

        def on_the_store(_settings: object, work: Any, _open_engine: object) -> Any:
            return asyncio.run_coroutine_threadsafe(work(Operations(engine)), loop).result(60)

        monkeypatch.setattr(store_access, "_run", on_the_store)
        monkeypatch.setattr(store_access, "has_owner", lambda _settings: True)
        app._settings = settings
        app.registry.adopt(engine)
        story = Story(engine, clock, settings)
        story.worker.start()
        yield story
        await story.worker.stop(5)
        app.registry.adopt(None)


async def fix_in_five_commands(story: Story) -> None:
    """Find, try, edit, try again and replay what was refused."""
    [group] = await story.json("dead", "groups")
    assert (group["task"], group["error_reason"], group["status"]) == (
        "charge",
        "upstream_4xx",
        400,
    )
    assert group["count"] == BAD_ORDERS
    these = ("--group", group["id"])
    tried = await story.command("dead", "try", *these, *APP, code=1)
    assert tried.stdout.startswith(f"0 of {BAD_ORDERS} would pass\n")
    edit = ("dead", "edit", *these, "--set", "payload.country=GB", *APP, *WHO, "--yes")
    assert f"{BAD_ORDERS} jobs edited\n" in (await story.command(*edit)).stdout
    tried = await story.command("dead", "try", *these, *APP)
    assert tried.stdout == f"{BAD_ORDERS} of {BAD_ORDERS} would pass\n"
    fixed = ("--fixed", "the country", "--canary", 2, "--rate", "4/s")
    replayed = await story.command("replay", *these, *fixed, *WHO)
    assert f"done {BAD_ORDERS}, failed again 0" in replayed.stdout


@pytest.mark.parametrize("kind", ["journal", "postgresql"])
async def test_what_may_pass_heals_and_the_rest_takes_five_commands(
    kind: str,
    server18: Databases,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    async with living(kind, server18, Settings(), monkeypatch) as story:
        await story.live_until(story.healed)

        # 429 and 503 have healed: what died before the outage was noticed has gone back too.
        assert await story.transient() == []
        assert story.died, "receipts died as the outage began"
        [outage] = await story.engine.outages(ended=True)
        assert outage.phase is OutagePhase.ENDED
        assert outage.since_us < START_US + (OUTAGE_SECONDS[0] + 10) * MICROSECONDS
        assert outage.ended_at_us > START_US + OUTAGE_SECONDS[1] * MICROSECONDS
        assert story.payments.answers[503] < 60, "most were not even tried"
        waited = [job for job in await story.jobs() if b"during-" in bytes(job.payload or b"")]
        assert [job.attempt for job in waited] == [1] * WAVE, "nothing was charged"
        [operation] = await story.engine.operations()
        assert (operation.by, operation.acted) == ("holdfast", len(story.died))

        await fix_in_five_commands(story)

        jobs = await story.jobs()
        assert len(jobs) == len(WAVES) * WAVE + RECEIPTS, "nothing is lost"
        assert {job.state for job in jobs} == {State.COMPLETED}
        orders = {f"charges {name}-{n}" for name in WAVES.values() for n in range(WAVE)}
        receipts = {f"receipts outage-{n}" for n in range(RECEIPTS)}
        assert story.payments.done == Counter(orders | receipts), "or done twice"
        assert set(story.payments.answers) == {200, 400, 429, 503}
        assert all(job.losses == 0 for job in jobs)
        audit = [(one["user_id"], one["action"]) for one in await story.json("audit", "list")]
        assert audit == [
            ("holdfast", "job.replay"),
            ("holdfast", "operation.completed"),
            ("ann", "job.edit"),
            ("ann", "operation.completed"),
            ("ann", "job.replay"),
            ("ann", "operation.completed"),
        ]


async def test_control_without_outages_and_with_few_attempts_transient_letters_die(
    server18: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with living("journal", server18, Settings(max_attempts=3), monkeypatch) as story:
        for flag in ("outage_mode", "auto_replay"):
            await story.engine.set_flag(flag, Attribution("ann", "a test"), on=False)
        await story.live_until(story.healed)
        dead = await story.transient()
        assert len(dead) >= 2 * WAVE, "those of two waves and all receipts"
        assert await story.engine.outages(ended=True) == []
