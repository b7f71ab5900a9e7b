"""Child processes for tasks that compute, cannot be trusted, or have killed a worker before."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest

from holdfast.model.job import Job
from holdfast.model.outcome import Outcome, OutcomeKind
from holdfast.model.retry import RetryPolicy
from holdfast.worker.app_loader import load_registry
from holdfast.worker.attempt import Attempt
from holdfast.worker.builtin_tasks import SIMULATE
from holdfast.worker.child_process import ChildConfig
from holdfast.worker.children import ChildBroken, Children, CpuLimitExceeded
from holdfast.worker.registry import Registry

from .world import World

APP = """
import asyncio, os, resource, signal, sys, time
from datetime import datetime
import holdfast
from holdfast import Cancel, Dead, Holdfast, Retry, Snooze

app = Holdfast({store!r})
calls = 0

@app.task(run_in="process")
def echo(value: object) -> object:
    return value

@app.task(run_in="process")
async def later(when: datetime) -> str:
    await asyncio.sleep(0)
    return f"{{type(when).__name__}} {{when.year}}"

@app.task(run_in="process")
def count() -> list[int]:
    global calls
    calls += 1
    return [os.getpid(), calls]

@app.task(run_in="process", retry=Retry(after=7))
def fail(kind: str) -> None:
    if kind == "signal":
        raise Dead("never", error_reason="hopeless")
    if kind == "snooze":
        raise Snooze("5m")
    if kind == "exit":
        sys.exit(3)
    raise ConnectionResetError("gone")

@app.task(run_in="process")
def die(how: str) -> None:
    if how == "exit":
        os._exit(9)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(60)

@app.task(run_in="process")
def noisy() -> str:
    for stream in (sys.stdout, sys.stderr):
        print("\\\\x00\\\\x00\\\\x00\\\\x05 hello" * 100, file=stream, flush=True)
    os.write(1, b"\\\\x00" * 5000)
    return "heard"

@app.task(run_in="process")
def steps() -> str:
    attempt = holdfast.current()
    for step in range(3):
        attempt.progress(step / 4, f"step {{step}}")
    return f"{{attempt.id}} {{attempt.number}} {{attempt.token}} {{attempt.deadline_seconds > 0}}"

@app.task(run_in="process")
def sleep() -> None:
    time.sleep(600)

@app.task(run_in="process")
def memory() -> int:
    return len(bytearray(600 * 1024 * 1024))

@app.task(run_in="process")
def spin(seconds: float) -> float:
    while (used := time.process_time()) < seconds:
        pass
    return used

@app.task
def in_thread(number: int) -> list[int]:
    return [os.getpid(), number]
"""

T = TypeVar("T")


@pytest.fixture
def app_file(tmp_path: Path) -> Path:
    path = tmp_path / "child_app.py"
    path.write_text(APP.format(store=str(tmp_path / "data")).replace("\\\\x", "\\x"))
    return path


@pytest.fixture
def registry(app_file: Path) -> Registry:
    return load_registry(f"{app_file}:app")


def attempt_of(registry: Registry, task: str, payload: bytes = b"{}", **fields: Any) -> Attempt:
    fields = {"token": 9, "attempt": 1, **fields}
    job = Job("j", "default", "", "default", task, payload, 0, 3, 0, 0, 1, **fields)
    return Attempt(job, registry.tasks[task], 30.0)


def with_children(
    registry: Registry,
    scenario: Callable[[Children], Coroutine[Any, Any, T]],
    **charter: Any,
) -> T:
    async def main() -> T:
        fields = {"reference": registry.reference, "default_task": SIMULATE, **charter}
        children = Children(ChildConfig(retry=RetryPolicy(), **fields))
        try:
            return await scenario(children)
        finally:
            await children.close()

    return asyncio.run(main())


def test_results_and_failures_come_back_as_if_the_task_had_run_here(registry):
    cases: list[tuple[str, bytes, OutcomeKind, object]] = [
        ("echo", b'{"value":{"a":[1,null]}}', OutcomeKind.COMPLETED, b'{"a":[1,null]}'),
        ("later", b'{"when":"2027-01-01T00:00:00Z"}', OutcomeKind.COMPLETED, b'"datetime 2027"'),
        ("fail", b'{"kind":"error"}', OutcomeKind.RETRY, "connection"),
        ("fail", b'{"kind":"signal"}', OutcomeKind.DEAD, "hopeless"),
        ("fail", b'{"kind":"snooze"}', OutcomeKind.SNOOZE, None),
        ("fail", b'{"kind":"exit"}', OutcomeKind.RETRY, "unexpected"),
        ("fail", b'{"odd":1}', OutcomeKind.DEAD, "payload_invalid"),
        ("noisy", b"{}", OutcomeKind.COMPLETED, b'"heard"'),
    ]

    async def scenario(children: Children) -> None:
        for task, payload, kind, expected in cases:
            outcome = await children.run(attempt_of(registry, task, payload), alone=False)
            assert (outcome.kind, outcome.id, outcome.token) == (kind, "j", 9)
            reason = outcome.failure.error_reason if outcome.failure else None
            assert expected == (reason if outcome.result is None else outcome.result)
            if kind is OutcomeKind.RETRY:
                assert outcome.delay_seconds == 7  # by the task's own policy
                assert outcome.failure is not None
                assert "child_app.py" in outcome.failure.traceback
        assert len(children._all) == 1  # one child did it all

    with_children(registry, scenario)


def result_of(outcome: Outcome) -> str:
    assert outcome.kind is OutcomeKind.COMPLETED, outcome
    return (outcome.result or b"").decode()


def test_a_child_is_used_again_unless_the_job_must_run_alone(registry):
    async def scenario(children: Children) -> None:
        async def count(*, alone: bool) -> list[int]:
            text = result_of(await children.run(attempt_of(registry, "count"), alone=alone))
            return [int(number) for number in text.strip("[]").split(",")]

        first, calls = await count(alone=False)
        assert (await count(alone=False)) == [first, 2]
        assert calls == 1
        fresh, alone_calls = await count(alone=True)
        assert fresh != first
        assert alone_calls == 1
        assert await gone(fresh)
        assert (await count(alone=False)) == [first, 3]
        many = await asyncio.gather(*(count(alone=False) for _ in range(3)))
        assert len({pid for pid, _calls in many}) == 3

    with_children(registry, scenario)


async def gone(pid: int) -> bool:
    """Wait for the process to be gone."""

    def there() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    return await eventually(lambda: not there())


async def eventually(reached: Callable[[], object], seconds: float = 10.0) -> bool:
    loop = asyncio.get_running_loop()
    give_up = loop.time() + seconds
    while not reached():
        if loop.time() > give_up:
            return False
        await asyncio.sleep(0.005)
    return True


def test_progress_is_seen_while_it_runs_and_the_child_knows_its_attempt(registry):
    async def scenario(children: Children) -> None:
        attempt = attempt_of(registry, "steps")
        seen: list[tuple[float | None, str]] = []
        attempt.report_progress_to(lambda share, note: seen.append((share, note)))
        outcome = await children.run(attempt, alone=False)
        assert seen == [(0.0, "step 0"), (0.25, "step 1"), (0.5, "step 2")]
        assert (attempt.progress_share, attempt.progress_note) == (0.5, "step 2")
        assert result_of(outcome) == '"j 1 9 True"'

    with_children(registry, scenario)


@pytest.mark.parametrize(
    ("how", "said"), [("SIGKILL", "SIGKILL"), ("SIGSEGV", "SIGSEGV"), ("exit", "exit code 9")]
)
def test_a_child_that_dies_is_a_loss_that_says_how(registry, how, said):
    async def scenario(children: Children) -> None:
        payload = f'{{"how":"{how}"}}'.encode()
        outcome = await children.run(attempt_of(registry, "die", payload), alone=False)
        assert outcome.kind is OutcomeKind.LOST
        assert outcome.failure is not None
        assert outcome.failure.error_reason == "worker_lost"
        assert outcome.failure.message == (
            f"the child process that ran attempt 1 ended with {said}"
        )
        # And the next one has another child.
        result_of(await children.run(attempt_of(registry, "count"), alone=False))

    with_children(registry, scenario)


def test_a_child_that_died_while_it_was_idle_costs_the_next_job_nothing(registry):
    async def scenario(children: Children) -> None:
        result_of(await children.run(attempt_of(registry, "count"), alone=False))
        (child,) = children._all
        os.kill(child._process.pid, signal.SIGKILL)
        await child._process.wait()
        result_of(await children.run(attempt_of(registry, "count"), alone=False))

    with_children(registry, scenario)


def test_cancelling_kills_the_child(registry):
    async def scenario(children: Children) -> None:
        result_of(await children.run(attempt_of(registry, "count"), alone=False))
        (child,) = children._all
        running = asyncio.ensure_future(children.run(attempt_of(registry, "sleep"), alone=False))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert await gone(child._process.pid)
        assert not children._all

    with_children(registry, scenario)


def test_a_child_leaves_when_its_worker_is_gone(registry):
    async def scenario(children: Children) -> None:
        result_of(await children.run(attempt_of(registry, "count"), alone=False))
        (child,) = children._all
        running = asyncio.ensure_future(children.run(attempt_of(registry, "sleep"), alone=False))
        await asyncio.sleep(0)
        assert child._process.stdin is not None
        child._process.stdin.close()  # as the system does when the worker dies
        assert await gone(child._process.pid)
        outcome = await running
        assert outcome.kind is OutcomeKind.LOST

    with_children(registry, scenario)


def test_memory_is_limited_if_asked_and_running_out_is_a_failure(registry):
    async def scenario(children: Children) -> None:
        outcome = await children.run(attempt_of(registry, "memory"), alone=False)
        assert outcome.kind is OutcomeKind.RETRY
        assert outcome.failure is not None
        assert "MemoryError" in outcome.failure.message

    with_children(registry, scenario, memory_limit_bytes=512 * 1024 * 1024)


def test_processor_time_is_limited_for_each_attempt_if_asked(registry):
    async def scenario(children: Children) -> None:
        kept = [await children.run(attempt_of(registry, "count"), alone=False) for _ in "ab"]
        with pytest.raises(CpuLimitExceeded, match=r"attempt 1 used more than 1 s of processor"):
            await children.run(attempt_of(registry, "spin", b'{"seconds":600}'), alone=False)
        after = await children.run(attempt_of(registry, "count"), alone=False)
        pids = [json.loads(one.result or b"[]")[0] for one in (*kept, after)]
        assert pids[0] == pids[1] != pids[2]

    with_children(registry, scenario, cpu_limit_seconds=1.0)


def test_control_without_the_limit_it_takes_what_it_wants(registry):
    async def scenario(children: Children) -> None:
        outcome = await children.run(attempt_of(registry, "spin", b'{"seconds":2.5}'), alone=False)
        assert outcome.kind is OutcomeKind.COMPLETED

    with_children(registry, scenario)


def test_a_process_that_cannot_be_started_fails_the_attempt(registry, monkeypatch):
    """Only what passes, such as no file being left, lets the job wait."""

    async def scenario(children: Children) -> None:
        outcome = await children.run(attempt_of(registry, "echo", b'{"value":1}'), alone=False)
        assert outcome.kind is OutcomeKind.SNOOZE

    for number in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM):
        refused = mock.AsyncMock(side_effect=OSError(number, os.strerror(number)))
        monkeypatch.setattr(asyncio, "create_subprocess_exec", refused)
        with_children(registry, scenario)

    async def broken(children: Children) -> None:
        with pytest.raises(ChildBroken, match="no child process can be started with /nowhere"):
            await children.run(attempt_of(registry, "echo", b'{"value":1}'), alone=False)

    monkeypatch.undo()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with_children(registry, broken)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nowhere.py:app", "there is no file 'nowhere.py'"),
        ("nowhere:app", "no module is named 'nowhere'"),
    ],
)
def test_an_application_that_cannot_be_imported_in_a_child_is_a_clear_error(
    registry, reference, said
):
    async def scenario(children: Children) -> None:
        with pytest.raises(ChildBroken, match=said):
            await children.run(attempt_of(registry, "count"), alone=False)
        assert not children._all

    with_children(registry, scenario, reference=reference)


def test_an_application_that_ends_the_child_is_a_clear_error(tmp_path, registry):
    path = tmp_path / "leaves.py"
    path.write_text("import os\nos._exit(4)\n")

    async def scenario(children: Children) -> None:
        with pytest.raises(ChildBroken, match="it exited during its start"):
            await children.run(attempt_of(registry, "count"), alone=False)

    with_children(registry, scenario, reference=f"{path}:app")


# --- under a worker ----------------------------------------------------------------------------


def worker_on(registry: Registry, scenario: Callable[[World], Awaitable[None]]) -> None:
    world = World(real=True, slots=2, task_timeout_seconds=20.0)
    world.registry = registry

    async def main(world: World) -> None:
        world.start()
        try:
            await scenario(world)
        finally:
            await world.stop(0)

    world.run(main)


def test_a_broken_application_is_the_jobs_failure_and_says_why(registry, tmp_path):
    registry.reference = str(tmp_path / "moved_away.py")

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("count", max_attempts=1)
        await world.until_state(dead=1, seconds=20)
        failure = (await world.job(job)).failure
        assert failure is not None
        assert "no child process can run this application" in failure.message
        assert "moved_away.py" in failure.message

    worker_on(registry, scenario)


def test_a_time_out_really_kills_what_runs_in_a_child(registry):
    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("sleep", max_attempts=1)
        children = world.worker._executor._children
        await world.until(lambda: children._all, 20)
        (child,) = children._all
        await world.until_state(dead=1, seconds=20)
        failure = (await world.job(job)).failure
        assert failure is not None
        assert failure.error_reason == "timeout"
        assert await gone(child._process.pid)

    registry.tasks["sleep"] = replace_timeout(registry, "sleep", 1.0)
    worker_on(registry, scenario)


def replace_timeout(registry: Registry, name: str, seconds: float) -> Any:
    import msgspec  # noqa: PLC0415 - only here

    return msgspec.structs.replace(registry.tasks[name], timeout_seconds=seconds)


def test_a_job_that_killed_two_workers_runs_alone_in_a_child_and_is_dead_after_the_third(
    registry,
):
    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("die", payload={"how": "SIGKILL"}, max_attempts=10)
        (other,) = await world.enqueue("in_thread", payload={"number": 7})
        await world.until_state(completed=1, dead=1, seconds=20)
        found = await world.job(job)
        assert (found.attempt, found.losses) == (3, 3)
        assert found.failure is not None
        assert (found.failure.error_reason, found.failure.message.split()[-1]) == (
            "worker_lost",
            "SIGKILL",
        )
        result = (await world.job(other)).result
        assert result == f"[{os.getpid()},7]".encode()  # a bystander is not hurt

    worker_on(registry, scenario)


def test_even_a_plain_task_runs_in_a_child_once_it_was_lost_twice(registry):
    async def scenario(world: World) -> None:
        await world.worker.stop(0)
        (job,) = await world.enqueue("in_thread", payload={"number": 7})
        for _ in range(2):
            await world.engine.claim(queues=["default"], worker="x")
            await world.engine.reclaim(forced=[await world.job(job)])
        world.start(leases=None)
        await world.until_state(completed=1, seconds=20)
        result = (await world.job(job)).result or b""
        assert int(result.strip(b"[]").split(b",")[0]) != os.getpid()

    worker_on(registry, scenario)
