"""Why a job does not run, in sentences with commands: on every engine, whoever asks."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from click.testing import CliRunner

from holdfast.cli.main import main
from holdfast.engines.contract import Engine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.actions import ArchiveJobs, CancelJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.failure import Failure
from holdfast.model.fleet import ProcessSlots, WorkerProcess
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed, dead
from holdfast.model.policy import QueuePolicy, Rate
from holdfast.model.search import Filter
from holdfast.operations.attribution import Author
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


async def explained(engine: Engine, job_id: str) -> list[tuple[str, str, str]]:
    """Return the kind, the sentence and the command of each reason but that no worker runs."""
    view = await Operations(engine).explain(job_id)
    assert [one.text for one in view.advisory] in ([], ["No worker runs on this store."])
    assert view.claimable is not bool(view.blocking)
    return [(one.kind, one.text, one.command) for one in view.blocking]


async def test_what_a_job_waits_for_is_named_with_the_command_that_changes_it(opened: Opened):
    async with opened() as engine:
        await engine.enqueue(
            [
                NewJob(task="t", id="plain"),
                NewJob(task="t", id="it's held", hold=True),
                NewJob(task="t", id="after", depends_on=("plain", "it's held")),
                NewJob(task="t", id="later", run_at_us=4_102_444_800_000_000),
                *(NewJob(task="t", id=f"k{n}", key="k", queue="keys") for n in (1, 2, 3)),
            ]
        )
        assert await explained(engine, "plain") == []
        assert await explained(engine, "it's held") == [
            (
                "confirmation",
                "It waits for the confirmation of a person.",
                """holdfast jobs confirm 'it'"'"'s held' --reason "…\"""",
            )
        ]
        assert await explained(engine, "after") == [
            (
                "dependency",
                "It depends on job 'plain', which is pending.",
                "holdfast jobs explain plain",
            ),
            (
                "dependency",
                """It depends on job "it's held", which is blocked.""",
                """holdfast jobs explain 'it'"'"'s held'""",
            ),
        ]
        [(kind, text, command)] = await explained(engine, "later")
        assert kind == "run_at"
        assert text.startswith("Its time is 2100-01-01 00:00:00 UTC (in ")
        assert command == 'holdfast jobs edit later --run-at now --reason "…"'
        assert await explained(engine, "k1") == []
        assert await explained(engine, "k3") == [
            (
                "key",
                "Job 'k1', which is pending, goes first in key 'k'.",
                "holdfast jobs explain k1",
            )
        ]


async def test_a_dead_head_of_a_key_is_replayed(opened: Opened):
    async with opened() as engine:
        await engine.enqueue([NewJob(task="t", id=f"k{n}", key="k") for n in (1, 2)])
        (job,) = (await engine.claim(queues=["default"], worker="w", limit=1)).jobs
        await engine.settle([dead(job, Failure.of("upstream_5xx", "no"))])
        assert await explained(engine, "k2") == [
            (
                "key",
                "Job 'k1', which is dead, goes first in key 'k'.",
                'holdfast replay k1 --reason "…"',
            )
        ]


@pytest.mark.parametrize(
    ("policy", "kind", "text", "command"),
    [
        (
            QueuePolicy(max_in_flight=1),
            "max_in_flight",
            "Queue 'default' runs at most 1 job at once: 1 job in flight.",
            'holdfast queues set default --max-in-flight N --reason "…"',
        ),
        (
            QueuePolicy(max_per_tenant=1),
            "max_per_tenant",
            "Queue 'default' runs at most 1 job of one tenant at once: 1 job in flight.",
            'holdfast queues set default --max-per-tenant N --reason "…"',
        ),
        (
            QueuePolicy(max_per_key=1, ordered=False),
            "max_per_key",
            "Queue 'default' runs at most 1 job of one key at once: 1 job in flight.",
            'holdfast queues set default --max-per-key N --reason "…"',
        ),
        (
            QueuePolicy(outage_until_us=4_102_444_800_000_000),
            "outage",
            "Queue 'default' is in outage mode, one job at a time, until 2100-01-01 00:00:00 UTC (",
            'holdfast queues resume default --reason "…"',
        ),
    ],
)
async def test_what_the_queue_holds_back_is_named(opened: Opened, policy, kind, text, command):
    async with opened() as engine:
        await engine.enqueue([NewJob(task="t", id="first", key="k")])
        await engine.claim(queues=["default"], worker="w", limit=1)
        await engine.enqueue([NewJob(task="t", id="next", key="k" if policy.max_per_key else None)])
        await engine.set_policy("default", policy, WHO)
        [found] = await explained(engine, "next")
        assert (found[0], found[2]) == (kind, command)
        assert found[1].startswith(text)


async def test_a_rate_and_those_before_it_are_named(opened: Opened):
    async with opened() as engine:
        await engine.set_policy("default", QueuePolicy(rate=Rate(2, 60.0), fair=True), WHO)
        await engine.enqueue([NewJob(task="t", id=f"j{n}") for n in (1, 2, 3)])
        [(kind, text, _command)] = await explained(engine, "j3")
        assert kind == "rate"
        assert text.startswith("Queue 'default' starts at most 2 jobs per 1m; there is room for it")
        assert text.endswith(", and 2 due jobs before it, as tenants take turns.")


async def test_who_paused_a_queue_when_and_why_comes_from_the_audit(opened: Opened):
    async with opened() as engine:
        operations = Operations(engine)
        await engine.enqueue([NewJob(task="t", id="one")])
        for by, why, paused in (("eve", "old", True), ("bob", "on", False), ("ann", "loud", True)):
            await operations.change_policy("default", {"paused": paused}, Author(by, why))
        await operations.change_policy("default", {"max_in_flight": 3}, Author("zoe", "less"))
        [(kind, text, command)] = await explained(engine, "one")
        assert kind == "paused"
        assert re.fullmatch(
            r"Queue 'default' is paused, by ann at \S+ \S+ UTC \(\w+ ago\): loud\.", text
        )
        assert command == 'holdfast queues resume default --reason "…"'
        await engine.set_policy("default", None, WHO)
        assert await explained(engine, "one") == []


async def test_a_pause_that_an_earlier_version_audited_or_nobody_is_named_too():
    engine = MemoryEngine()
    await engine.enqueue([NewJob(task="t", id="one")])
    await engine.set_policy("default", QueuePolicy(paused=True), WHO)
    [(_kind, text, _command)] = await explained(engine, "one")
    assert text == "Queue 'default' is paused."
    old = AuditEntry("queue.policy", "queue", "default", "eve", '{"paused":true}', "why not.")
    await engine.audit([old])
    [(_kind, text, _command)] = await explained(engine, "one")
    assert text.startswith("Queue 'default' is paused, by eve at ")
    assert text.endswith(": why not.")


@pytest.mark.parametrize(
    ("outcome", "text", "command"),
    [
        (lambda job: completed(job, None), "It completed at ", "holdfast jobs show a"),
        (
            lambda job: dead(job, Failure.of("upstream_5xx", "no")),
            r"It is dead since .*, after 1 attempt: upstream_5xx \(transient\): no",
            'holdfast replay a --reason "…"',
        ),
        (
            lambda job: dead(job, Failure.of("mapping_error", "no column")),
            r"It is dead since .*: mapping_error \(deterministic\): no column",
            'holdfast replay a --fixed "…" --reason "…"',
        ),
    ],
)
async def test_what_happened_to_a_finished_job_is_told(opened: Opened, outcome, text, command):
    async with opened() as engine:
        await engine.enqueue([NewJob(task="t", id="a")])
        (job,) = (await engine.claim(queues=["default"], worker="w", limit=1)).jobs
        [(_kind, runs, _command)] = await explained(engine, "a")
        assert re.fullmatch(r"It runs: attempt 1 since .*, on w\.", runs)
        await engine.settle([outcome(job)])
        [(kind, found, way_on)] = await explained(engine, "a")
        assert (kind, way_on) == ("state", command)
        assert re.match(text, found)


async def test_an_archived_job_is_restored_and_a_cancelled_one_says_why():
    engine = MemoryEngine()
    await engine.enqueue([NewJob(task="t", id="a", tenant="acme"), NewJob(task="t", id="b")])
    (job,) = (await engine.claim(queues=["default"], worker="w", limit=1)).jobs
    await engine.settle([dead(job, Failure.of("timeout", "no"))])
    await engine.operate(ArchiveJobs(), Filter(tenant="acme"), WHO)
    await engine.operate(CancelJobs(), Filter(ids=("b",)), Attribution("ops", "not wanted"))
    [reason] = (await Operations(engine).explain("a", "acme")).blocking
    assert reason.command == 'holdfast dead restore a --tenant acme --reason "…"'
    [reason] = (await Operations(engine).explain("b")).blocking
    assert reason.text.endswith(": not wanted.")


# --- workers -----------------------------------------------------------------------------------


def process(name: str, **fields: object) -> WorkerProcess:
    make: Callable[..., WorkerProcess] = WorkerProcess
    given = {
        "id": name,
        "name": name,
        "host": "elsewhere",
        "pid": 1,
        "version": "1",
        "started_at_us": 0,
        "slots": {"": 2},
        "processes": {name: ProcessSlots(2, 0, draining=False)},
        "tasks": ("t",),
    }
    return make(**{**given, **fields})


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"queues": ("mail",)}, "worker", "No live worker serves queue 'default'."),
        (
            {"draining": True},
            "worker",
            "Every live worker that serves queue 'default' is draining.",
        ),
        (
            {"tasks": ("other",)},
            "task",
            "No live worker that serves queue 'default' knows task 't'.",
        ),
        (
            {"processes": {"w": ProcessSlots(2, 2, draining=False)}},
            "slots",
            "Every slot of the workers that serve queue 'default' is busy: 2 of them.",
        ),
        ({}, "", ""),
    ],
)
async def test_what_the_workers_lack_is_said_apart(fields, kind, text):
    engine = MemoryEngine()
    await engine.enqueue([NewJob(task="t", id="one")])
    await engine.announce(process("w", **fields), ttl_seconds=60)
    view = await Operations(engine).explain("one")
    assert view.claimable
    assert view.blocking == []
    found = [(one.kind, one.text) for one in view.advisory]
    assert found == ([(kind, text)] if kind else [])
    assert all(one.command for one in view.advisory)


def test_the_command_answers_with_and_without_a_store_in_use(tmp_path):
    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, ["--store", str(tmp_path / "data"), *words])
        assert result.exit_code == code, result.output
        return result.output

    jobs = json.dumps([{"id": f"k{n}", "key": "k"} for n in (1, 2)])
    CliRunner().invoke(main, ["--store", str(tmp_path / "data"), "enqueue"], input=jobs)
    assert run("jobs", "explain", "k2") == (
        "Job 'k2' is pending and cannot run yet.\n"
        "- Job 'k1', which is pending, goes first in key 'k'.\n"
        "    holdfast jobs explain k1\n"
        "- No worker runs on this store.\n"
        "    holdfast run MODULE:APP\n"
    )
    assert run("jobs", "explain", "k1").startswith("Job 'k1' is ready to run: the next free slot")
    assert "\n- Job 'k1', which is pending, goes first" in run("jobs", "show", "k2")
    one, _worker = json.loads(run("jobs", "show", "k2", "--json"))["waits_for"]
    assert (one["kind"], one["job"]) == ("key", "k1")
    found = json.loads(run("jobs", "explain", "k2", "--json"))
    assert (found["claimable"], found["blocking"]) == (False, [one])
    run("jobs", "explain", "nobody", code=3)
    run("jobs", "explain", "k1", "--tenant", "acme", code=3)
