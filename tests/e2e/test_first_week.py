"""A web application, tasks against a flaky dependency, an outage; with the default settings.

The store's time is virtual, so that long waits take no time. The web application, the worker and
the store are real.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI
from msgspec.structs import replace

from holdfast import Holdfast
from holdfast.daemon.worker_settings import worker_options
from holdfast.engines.contract import Engine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.failure import FailureClass
from holdfast.model.job import MICROSECONDS, Job, State
from holdfast.model.search import Filter
from holdfast.settings import Settings
from holdfast.testing.clock import START_US, VirtualClock
from holdfast.testing.disk import SimDisk
from holdfast.worker.worker import Worker
from tests.engines.postgres.servers import Databases

ORDERS = 120
BAD_ORDERS = 5
OUTAGE_SECONDS = 20
RATE_LIMITED_SECONDS = 15
RETRY_AFTER_SECONDS = 12
OLD_DEFAULTS = Settings(
    max_attempts=3, base_backoff_seconds=1, max_backoff_seconds=300, backoff_jitter=1
)


class Payments:
    """A service that is away for a while, then limits its callers, and refuses one field."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.answers: Counter[int] = Counter()
        self.charged: Counter[str] = Counter()

    def answer(self, request: httpx.Request) -> httpx.Response:
        seconds = (self._clock.now_us() - START_US) / MICROSECONDS
        order = dict(httpx.QueryParams(request.content.decode()))
        headers: dict[str, str] = {}
        if order["currency"] != "EUR":
            status = 400
        elif seconds < OUTAGE_SECONDS:
            status = 503
        elif seconds < OUTAGE_SECONDS + RATE_LIMITED_SECONDS:
            status, headers = 429, {"Retry-After": str(RETRY_AFTER_SECONDS)}
        else:
            status = 200
            self.charged[order["id"]] += 1
        self.answers[status] += 1
        return httpx.Response(status, headers=headers)


def shop(payments: Payments, settings: Settings) -> tuple[Holdfast, FastAPI]:
    """Return the application and its web part, as a user writes them."""
    app = Holdfast()
    app._settings = settings
    web = FastAPI()

    @app.task(queue="payments")
    async def charge(order_id: str, currency: str) -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(payments.answer)) as client:
            order = {"id": order_id, "currency": currency}
            (await client.post("https://payments.example/charges", data=order)).raise_for_status()

    @web.post("/orders/{order_id}", status_code=202)
    async def order(order_id: str, currency: str = "EUR") -> dict[str, str]:
        return {"job": (await charge.enqueue(order_id, currency)).id}

    return app, web


async def jobs_of(engine: Engine) -> list[Job]:
    return (await engine.find(Filter(), limit=1_000)).jobs


async def run_until_finished(engine: Engine, clock: VirtualClock, worker: Worker) -> None:
    """Move time from one due moment to the next until every job has ended."""
    worker.start()
    async with asyncio.timeout(100):
        while unfinished := [job for job in await jobs_of(engine) if not job.state.finished]:
            now_us = clock.now_us()
            due = [job for job in unfinished if job.run_at_us <= now_us]
            if due:  # these run now, in real time
                await asyncio.sleep(0.01)
                continue
            first_us = min(job.run_at_us for job in unfinished)
            clock.advance((first_us - now_us) / MICROSECONDS + 0.5)
    await worker.stop(5)


async def live_through_the_first_week(
    engine: Engine, clock: VirtualClock, settings: Settings
) -> tuple[list[Job], Payments]:
    payments = Payments(clock)
    app, web = shop(payments, settings)
    app.registry.adopt(engine)
    browser = httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://shop")
    async with browser:
        for number in range(ORDERS):
            currency = "XXX" if number < BAD_ORDERS else "EUR"
            answer = await browser.post(f"/orders/{number}", params={"currency": currency})
            assert answer.status_code == 202
    options = replace(worker_options(settings), poll_interval_seconds=0.02)
    worker = Worker(engine, app.registry, "w", options)
    await worker.look_for_queues()
    await run_until_finished(engine, clock, worker)
    app.registry.adopt(None)
    return await jobs_of(engine), payments


@asynccontextmanager
async def store(kind: str, clock: VirtualClock, databases: Databases) -> AsyncIterator[Engine]:
    if kind == "journal":
        journal = await JournalEngine.open(SimDisk(), clock=clock)
        yield journal
        await journal.close()
        return
    with databases.fresh() as url:
        options = PostgresOptions(poll_interval_seconds=0.02)
        server = await PostgresEngine.open(url, clock=clock, options=options)
        yield server
        await server.close()


@pytest.mark.parametrize("kind", ["journal", "postgresql"])
async def test_nothing_transient_dies_with_the_default_settings(
    kind: str, server18: Databases
) -> None:
    clock = VirtualClock()
    async with store(kind, clock, server18) as engine:
        jobs, payments = await live_through_the_first_week(engine, clock, Settings())
    dead = [job for job in jobs if job.state is State.DEAD]
    assert len(jobs) == ORDERS
    assert len(dead) == BAD_ORDERS
    for job in dead:
        assert job.failure is not None
        assert job.failure.failure_class is FailureClass.DETERMINISTIC
        assert job.attempt == 1
    assert set(payments.answers) == {200, 400, 429, 503}
    assert payments.charged == Counter(str(n) for n in range(BAD_ORDERS, ORDERS))
    assert all(job.losses == 0 for job in jobs)


async def test_control_three_runs_with_full_jitter_fill_the_dead_letters(
    server18: Databases,
) -> None:
    clock = VirtualClock()
    async with store("journal", clock, server18) as engine:
        jobs, _payments = await live_through_the_first_week(engine, clock, OLD_DEFAULTS)
    dead = [job for job in jobs if job.state is State.DEAD]
    assert len(dead) == ORDERS
