"""What a job waits for, named by ``jobs show``: on every engine, whoever reads it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from click.testing import CliRunner

from holdfast.cli.main import main
from holdfast.engines.contract import Engine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.audit import Attribution
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed, dead
from holdfast.model.policy import QueuePolicy, Rate
from holdfast.operations.operations import Operations

WHO = Attribution("ops", "test")
Opened = Callable[[], AbstractAsyncContextManager[Engine]]


@pytest.fixture(params=["memory", "journal", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path) -> Opened:
    @asynccontextmanager
    async def make() -> AsyncIterator[Engine]:
        engine: Engine
        if request.param == "memory":
            yield MemoryEngine()
            return
        if request.param == "journal":
            engine = await JournalEngine.open(tmp_path / "data")
            yield engine
            await engine.close()
            return
        with request.getfixturevalue("server18").fresh() as url:
            engine = await PostgresEngine.open(url)
            yield engine
            await engine.close()

    return make


async def waits(engine: Engine, job_id: str) -> list[tuple[str, str]]:
    view = await Operations(engine).history(job_id)
    for one in view.waits:
        assert one.job in ("", one.text.partition("'")[2].partition("'")[0])
    return [(one.kind, one.text) for one in view.waits]


async def test_everything_that_a_job_can_wait_for_is_named(opened: Opened):
    async with opened() as engine:
        await engine.enqueue(
            [
                NewJob(task="t", id="plain"),
                NewJob(task="t", id="held", hold=True),
                NewJob(task="t", id="after", depends_on=("plain", "held")),
                NewJob(task="t", id="later", run_at_us=4_102_444_800_000_000),
                *(NewJob(task="t", id=f"k{n}", key="k", queue="keys") for n in (1, 2, 3)),
            ]
        )
        pending = "job '{}', which is pending: see `holdfast jobs show {}`"
        assert await waits(engine, "plain") == [
            ("worker", "a free slot of a worker that serves 'default'")
        ]
        assert await waits(engine, "held") == [
            (
                "confirmation",
                "the confirmation of a person: `holdfast jobs confirm held --reason …`",
            )
        ]
        assert await waits(engine, "after") == [
            ("dependency", pending.format("plain", "plain")),
            ("dependency", "job 'held', which is blocked: see `holdfast jobs show held`"),
        ]
        assert await waits(engine, "later") == [("time", "its time, 2100-01-01 00:00:00 UTC")]
        assert [kind for kind, _text in await waits(engine, "k1")] == ["worker"]
        assert await waits(engine, "k3") == [
            ("key", f"{pending.format('k1', 'k1')}; it is before this one in key 'k'")
        ]


async def test_the_head_of_a_key_is_named_while_it_runs_and_when_it_is_dead(opened: Opened):
    async with opened() as engine:
        await engine.enqueue([NewJob(task="t", id=f"k{n}", key="k") for n in (1, 2, 3)])
        (job,) = (await engine.claim(queues=["default"], worker="w", limit=1)).jobs
        assert await waits(engine, "k1") == []
        assert await waits(engine, "k3") == [
            ("key", "job 'k1', which is in flight; it is before this one in key 'k'")
        ]
        await engine.settle([dead(job, Failure.of("upstream_5xx", "no"))])
        for waiting in ("k2", "k3"):
            ((kind, text),) = await waits(engine, waiting)
            assert kind == "key"
            assert text.startswith(
                "job 'k1', which is dead: replay or archive it: `holdfast replay"
            )
        await engine.set_policy("default", QueuePolicy(ordered=False), WHO)
        assert [kind for kind, _text in await waits(engine, "k3")] == ["worker"]


@pytest.mark.parametrize(
    ("policy", "kind", "text"),
    [
        (
            QueuePolicy(paused=True),
            "paused",
            "queue 'default', which is paused: `holdfast queues resume default --reason …`",
        ),
        (
            QueuePolicy(max_in_flight=1),
            "limit",
            "queue 'default', which runs at most 1 at once, and 1 run",
        ),
        (
            QueuePolicy(max_per_tenant=1),
            "limit",
            "queue 'default', which runs at most 1 of a tenant at once, and 1 run",
        ),
        (
            QueuePolicy(max_per_key=1, ordered=False),
            "limit",
            "queue 'default', which runs at most 1 of a key at once, and 1 run",
        ),
        (
            QueuePolicy(rate=Rate(10, 60.0)),
            "limit",
            "perhaps queue 'default', which starts at most 10 per 1m",
        ),
    ],
)
async def test_what_the_queue_holds_back_is_named(opened: Opened, policy, kind, text):
    async with opened() as engine:
        await engine.enqueue([NewJob(task="t", id="first", key="k")])
        await engine.claim(queues=["default"], worker="w", limit=1)
        await engine.enqueue([NewJob(task="t", id="next", key="k" if policy.max_per_key else None)])
        await engine.set_policy("default", policy, WHO)
        assert await waits(engine, "next") == [(kind, text)]


async def test_a_limit_with_room_is_not_named(opened: Opened):
    async with opened() as engine:
        policy = QueuePolicy(max_in_flight=1, max_per_tenant=1, max_per_key=1)
        await engine.set_policy("default", policy, WHO)
        await engine.enqueue([NewJob(task="t", id="one", key="k")])
        assert [kind for kind, _text in await waits(engine, "one")] == ["worker"]
        (job,) = (await engine.claim(queues=["default"], worker="w", limit=1)).jobs
        await engine.settle([completed(job, None)])
        assert await waits(engine, "one") == []


def test_the_command_prints_it(tmp_path):
    store = tmp_path / "data"
    jobs = json.dumps([{"id": f"k{n}", "key": "k"} for n in (1, 2)])
    CliRunner().invoke(main, ["--store", str(store), "enqueue"], input=jobs)
    result = CliRunner().invoke(main, ["--store", str(store), "jobs", "show", "k2"])
    assert "\nwaits for job 'k1', which is pending: see `holdfast jobs show k1`; " in result.stdout
    result = CliRunner().invoke(main, ["--store", str(store), "jobs", "show", "k2", "--json"])
    (one,) = json.loads(result.stdout)["waits_for"]
    assert (one["kind"], one["job"]) == ("key", "k1")


async def test_an_outage_is_named(opened: Opened):
    async with opened() as engine:
        await engine.enqueue([NewJob(task="t", id="a", queue="mail@api")])
        await engine.set_outage("api", Attribution("ann", "maintenance"), on=True)
        [wait] = (await Operations(engine).history("a")).waits
        assert wait.kind == "outage"
        assert wait.text.startswith("'api', which is out since ")
        assert "holdfast outages list" in wait.text
