"""An application that owns its store and works, inside this process."""

import asyncio
import contextvars
import json
import logging
import os
import threading
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from holdfast import (
    Attempt,
    Cancel,
    Classifier,
    Dead,
    Holdfast,
    InvalidInput,
    JobFailed,
    Retry,
    Rule,
    Snooze,
    Verdict,
    current,
)
from holdfast.cli.store_access import request_owner
from holdfast.daemon.rpc import OPERATIONS
from holdfast.model.errors import DirectoryInUse
from holdfast.model.failure import FailureClass
from holdfast.operations.views import Status
from holdfast.stores.opening import own_journal
from holdfast.worker.app_loader import load_registry

FAST: dict[str, object] = {"base_backoff_seconds": 0, "max_backoff_seconds": 0}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Holdfast:
    monkeypatch.chdir(tmp_path)
    return Holdfast(tmp_path / "data")


async def eventually(reached: Callable[[], object], seconds: float = 20.0) -> None:
    loop = asyncio.get_running_loop()
    give_up = loop.time() + seconds
    while not reached():
        assert loop.time() < give_up, "it did not come to this"
        await asyncio.sleep(0.005)


async def status(app: Holdfast) -> Status:
    """Ask as the command line does."""
    found = await asyncio.to_thread(
        request_owner, app.settings, "GET", f"{OPERATIONS}status", b"", Status
    )
    assert found is not None
    return found


def test_an_application_runs_what_it_enqueues(app: Holdfast):
    @app.task
    async def add(left: int, right: int) -> int:
        return left + right

    @app.task(queue="threads")
    def where() -> list[object]:
        return [os.getpid(), threading.current_thread().name, current().number]

    async def main() -> None:
        async with app.running() as same:
            assert same is app
            handles = await add.enqueue_many([(number, 1) for number in range(20)])
            assert [await handle.result(20) for handle in handles] == list(range(1, 21))
            handle = await where.enqueue()
            assert await handle.result(20) == [os.getpid(), "holdfast-task", 1]
            assert not handle.existed
            assert (await handle.get()).state == "completed"

    asyncio.run(main())
    asyncio.run(main())  # and again, on the same store


async def test_what_was_enqueued_before_is_run_and_nothing_is_lost_when_it_stops(app: Holdfast):
    begun = asyncio.Event()

    @app.task
    async def work(seconds: float) -> str:
        begun.set()
        await asyncio.sleep(seconds)
        return "done"

    async with app.running(drain_seconds=0, worker_count=1):
        slow = await work.enqueue(600)
        await begun.wait()
        waiting = await work.enqueue(0)
    async with app.running(worker_count=2, drain_seconds=0):
        assert await waiting.result(20) == "done"
        found = await slow.get()
        # It was handed back: this is its first run again.
        assert (found.attempt, found.losses) == (1, 0)
        await app._binding.call(lambda engine: engine.reclaim(forced=[found]))


async def test_results_that_are_too_large_for_one_commit_together_are_all_kept(app: Holdfast):
    together = asyncio.Barrier(40)

    @app.task(timeout=60)
    async def work(number: int) -> str:
        await together.wait()  # so that all outcomes are there at once
        return str(number) * 120_000

    async with app.running(worker_count=40):
        handles = await work.enqueue_many([(number,) for number in range(10, 50)])
        for number, handle in enumerate(handles, 10):
            assert await handle.result(20) == str(number) * 120_000
            assert (await handle.get()).attempt == 1


async def test_failures_are_raised_to_who_waits(app: Holdfast):
    @app.task(retry=Retry(max_attempts=2))
    async def fail(how: str) -> None:
        if how == "dead":
            raise Dead("never", error_reason="hopeless")
        if how == "cancel":
            raise Cancel
        raise ConnectionResetError("gone")

    async with app.running(**FAST):
        for how, state, reason in [
            ("dead", "dead", "hopeless"),
            ("cancel", "cancelled", ""),
            ("error", "dead", "connection"),
        ]:
            handle = await fail.enqueue(how)
            with pytest.raises(JobFailed) as failed:
                await handle.result(20)
            assert (failed.value.state, failed.value.error_reason) == (state, reason)
            assert failed.value.job_id == handle.id
            assert (await handle.get()).attempt == (2 if how == "error" else 1)


def test_a_task_may_ask_for_another_try_or_for_later(app: Holdfast):
    runs: list[int] = []

    @app.task(retry=Retry(max_attempts=5))
    async def work() -> list[int]:
        runs.append(current().number)
        if len(runs) == 1:
            raise Snooze("10ms")
        if len(runs) == 2:
            return Retry(after=0)  # type: ignore[return-value]  # a signal may be returned too
        return runs

    async def main() -> object:
        async with app.running():
            return await (await work.enqueue()).result(20)

    assert asyncio.run(main()) == [1, 1, 2]  # a snooze is not charged


async def test_a_task_may_enqueue_others(app: Holdfast):
    @app.task
    async def child(number: int) -> int:
        return number * 2

    @app.task
    def thread_child(number: int) -> str:
        return child.enqueue_sync(number).id

    @app.task
    async def parent() -> list[str]:
        handles = await child.enqueue_many([(1,), (2,)])
        return [handle.id for handle in handles]

    async with app.running():
        ids = await (await parent.enqueue()).result(20)
        assert isinstance(ids, list)
        assert [await app.job(job_id).result(20) for job_id in ids] == [2, 4]
        job_id = await (await thread_child.enqueue(5)).result(20)
        assert await app.job(str(job_id)).result(20) == 10


async def test_a_classifier_of_ones_own_decides(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rule = Rule("ours", lambda *_: Verdict("quota", FailureClass.DETERMINISTIC))
    app = Holdfast(tmp_path / "data", classifier=Classifier([rule]))

    @app.task
    async def fail() -> None:
        raise ConnectionResetError

    async with app.running():
        with pytest.raises(JobFailed) as failed:
            await (await fail.enqueue()).result(20)
        assert failed.value.error_reason == "quota"


async def test_cron_ticks_become_jobs(app: Holdfast):
    ticks: list[str] = []

    @app.cron("* * * * * *", name="every-second", arguments={"word": "tick"})
    @app.task(queue="clock")
    async def tick(word: str) -> None:
        ticks.append(f"{word} {current().id}")

    async with app.running():
        await eventually(lambda: len(ticks) >= 2)
    stopped = len(ticks)
    assert len(set(ticks)) == stopped
    assert all(line.startswith("tick cron/every-second/2") for line in ticks)


def test_hooks_run_in_order_around_all_work(app: Holdfast):
    trace: list[str] = []

    @app.on_start
    def first() -> None:
        trace.append("start 1")

    @app.on_start
    async def second() -> None:
        await asyncio.sleep(0)
        trace.append("start 2")

    @app.on_stop
    async def third() -> None:
        trace.append("stop 1")
        raise ZeroDivisionError("a hook that fails holds up nobody")

    @app.on_stop
    def fourth() -> None:
        trace.append("stop 2")

    @app.task
    async def work() -> None:
        trace.append("work")

    async def main() -> None:
        async with app.running():
            await (await work.enqueue()).result(20)

    asyncio.run(main())
    assert trace == ["start 1", "start 2", "work", "stop 1", "stop 2"]


async def test_a_start_hook_that_fails_keeps_it_from_starting_and_lets_go_of_the_store(
    app: Holdfast,
):
    @app.on_start
    def broken() -> None:
        raise ZeroDivisionError("no pool")

    with pytest.raises(ZeroDivisionError):
        async with app.running():
            pytest.fail("it started")
    app.registry.on_start.clear()
    async with app.running():
        pass


PROCESS_APP = """
import os
import holdfast
app = holdfast.Holdfast({store!r})

@app.task(run_in="process")
def in_process() -> list[object]:
    holdfast.current().progress(0.5, "half")
    return [os.getpid(), holdfast.current().id]

@app.task
async def on_loop() -> list[object]:
    return [os.getpid(), holdfast.current().id]

@app.task
def in_thread() -> list[object]:
    return [os.getpid(), holdfast.current().id]
"""


def test_middlewares_are_around_every_kind_of_task_and_their_context_reaches_it(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "kinds.py"
    path.write_text(PROCESS_APP.format(store=str(tmp_path / "data")))
    registry = load_registry(f"{path}:app")
    app: Holdfast = next(
        value
        for value in vars(__import__("kinds")).values()
        if isinstance(value, Holdfast) and value.registry is registry
    )
    trace: list[tuple[str, str, object]] = []
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
    seen: list[str] = []

    @app.middleware
    @asynccontextmanager
    async def around(attempt: Attempt) -> AsyncIterator[None]:
        request.set(attempt.id)
        trace.append(("+", attempt.task.name, current().id == attempt.id))
        yield
        trace.append(("-", attempt.task.name, attempt.progress_share))

    @app.task(name="reads_context")
    async def reads_context() -> None:
        seen.append(request.get())

    @app.task(name="reads_context_in_thread")
    def reads_context_in_thread() -> None:
        seen.append(request.get())

    async def main() -> None:
        async with app.running(task_timeout_seconds=30):
            for name in ("on_loop", "in_thread", "in_process"):
                handle = await app.enqueue(name)
                found = await handle.result(30)
                assert isinstance(found, list)
                assert found[1] == handle.id
                assert (found[0] == os.getpid()) is (name != "in_process")
            handles = [await reads_context.enqueue(), await reads_context_in_thread.enqueue()]
            for handle in handles:
                await handle.result(20)
            assert seen == [handle.id for handle in handles]

    asyncio.run(main())
    assert trace[:6] == [
        ("+", "on_loop", True),
        ("-", "on_loop", None),
        ("+", "in_thread", True),
        ("-", "in_thread", None),
        ("+", "in_process", True),
        ("-", "in_process", 0.5),
    ]


async def test_progress_is_seen_in_the_status_while_it_runs(app: Holdfast):
    go = asyncio.Event()
    begun = asyncio.Event()

    @app.task(queue="slow", timeout=60)
    async def work() -> None:
        current().progress(0.25, "reading")
        current().logger.info("looking")
        begun.set()
        await go.wait()

    async with app.running(worker_count=3):
        handle = await work.enqueue()
        await begun.wait()
        found = await status(app)
        (run,) = found.running
        assert (run.job_id, run.task, run.queue) == (handle.id, "work", "slow")
        assert (run.progress_share, run.progress_note) == (0.25, "reading")
        assert (found.in_flight, found.slots) == (1, {"": 3})
        go.set()
        await handle.result(20)
        found = await status(app)
        assert (found.in_flight, found.completed, found.running) == (0, 1, [])


@pytest.mark.parametrize("share", [-0.1, 1.1])
async def test_progress_is_a_share(app: Holdfast, share):
    @app.task
    async def work() -> None:
        with pytest.raises(InvalidInput, match="not between 0 and 1"):
            current().progress(share)
        current().progress(None, "only a note")

    async with app.running():
        await (await work.enqueue()).result(20)


def test_an_attempts_logger_names_the_job(app: Holdfast, caplog):
    @app.task
    async def work() -> None:
        current().logger.info("looking")

    async def main() -> str:
        async with app.running():
            handle = await work.enqueue()
            await handle.result(20)
            return handle.id

    with caplog.at_level(logging.INFO, "holdfast.task"):
        job_id = asyncio.run(main())
    (record,) = [record for record in caplog.records if record.name == "holdfast.task"]
    assert (record.job, record.attempt, record.queue, record.task) == (  # type: ignore[attr-defined]
        job_id,
        1,
        "default",
        "work",
    )


async def test_settings_come_from_the_environment_and_arguments_go_over_them(
    app: Holdfast, monkeypatch
):
    monkeypatch.setenv("HOLDFAST_WORKER_COUNT", "5")
    monkeypatch.setenv("HOLDFAST_MAX_ATTEMPTS", "7")

    @app.task
    async def work() -> None: ...

    async with app.running():
        assert (await status(app)).slots == {"": 5}
        assert (await (await work.enqueue()).get()).max_attempts == 7
    async with app.running(worker_count=2):
        assert (await status(app)).slots == {"": 2}
    with pytest.raises(InvalidInput, match="worker_cuont"):
        async with app.running(worker_cuont=2):
            pytest.fail("it started")


async def test_the_metrics_port_is_opened_only_if_asked(app: Holdfast, free_port: int):
    @app.task
    async def work() -> None: ...

    def read(path: str) -> str:
        address = f"http://127.0.0.1:{free_port}{path}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            return str(answer.read().decode())

    async with app.running(metrics_port=free_port):
        await (await work.enqueue()).result(20)
        text = await asyncio.to_thread(read, "/metrics")
        assert 'queue_jobs_completed_total{queue="default"} 1.0' in text
        assert "queue_recovery_seconds" in text
        ready = json.loads(await asyncio.to_thread(read, "/health/ready"))
        assert ready == {"status": "ready"}
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(read, "/metrics")


async def test_two_owners_of_one_store_are_refused(app: Holdfast, monkeypatch):
    monkeypatch.setattr(own_journal, "__defaults__", (0.05,))  # how long it waits for the lock
    other = Holdfast(app.settings.store)

    async with app.running():
        with pytest.raises(DirectoryInUse):
            async with other.running():
                pytest.fail("it started")


async def test_jobs_from_a_file_reach_an_application_that_runs(app: Holdfast):
    @app.task
    async def mail(to: str) -> str:
        return f"sent to {to}"

    async with app.running():
        body = msgspec.json.encode({"jobs": [{"payload": {"type": "mail", "to": "ann"}}]})
        receipts = await asyncio.to_thread(
            request_owner, app.settings, "POST", f"{OPERATIONS}enqueue", body, list[dict[str, str]]
        )
        assert receipts is not None
        assert await app.job(receipts[0]["id"]).result(20) == "sent to ann"
