"""Runs one attempt: on the event loop, in a thread, or in a child process."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence

from holdfast.model import lifecycle
from holdfast.model.job import Job
from holdfast.model.outcome import Outcome, release
from holdfast.model.retry import RetryPolicy

from .attempt import Attempt, enter, leave
from .batch_call import CallResult, Settled
from .builtin_tasks import SIMULATE
from .child_process import ChildConfig
from .children import Children
from .item_batch import ItemBatch
from .registry import Execution, Registry, is_async
from .threads import ThreadPool
from .verdicts import Verdicts


class Executor:
    """Runs attempts to their outcomes. ``inline`` runs everything on the loop, for tests."""

    def __init__(
        self,
        registry: Registry,
        retry: RetryPolicy,
        *,
        memory_limit_bytes: int | None = None,
        cpu_limit_seconds: float | None = None,
        inline: bool = False,
    ) -> None:
        self._registry = registry
        self._verdicts = Verdicts(registry.classifier, retry)
        self._inline = inline
        self._threads = ThreadPool()
        self._children = Children(self._child_config(retry, memory_limit_bytes, cpu_limit_seconds))

    @property
    def abandoned_threads(self) -> int:
        """How many threads are held by attempts that timed out."""
        return self._threads.abandoned

    @property
    def child_kills(self) -> int:
        """How many child processes were killed while they ran a job."""
        return self._children.kills

    def change(
        self, retry: RetryPolicy, memory_limit_bytes: int | None, cpu_limit_seconds: float | None
    ) -> None:
        """Use another retry policy, and other limits for new child processes."""
        self._verdicts.default_policy = retry
        self._children.change(self._child_config(retry, memory_limit_bytes, cpu_limit_seconds))

    def in_child(self, attempt: Attempt) -> bool:
        """Whether it runs in a child process."""
        if self._inline:
            return False
        return attempt.task.execution is Execution.PROCESS or lifecycle.runs_alone(attempt.job)

    def still_runs(self, attempt: Attempt) -> bool:
        """Whether a thread of an earlier attempt of this job was abandoned and still runs."""
        return self._threads.still_runs(_key(attempt))

    async def earlier_returned(self, attempt: Attempt) -> None:
        """Wait until no such thread runs."""
        await self._threads.returned(_key(attempt))

    async def run(
        self, attempt: Attempt, on_start: Callable[[Attempt], None] = lambda _attempt: None
    ) -> Outcome:
        """Run it to its outcome. Only a cancellation from outside is raised.

        ``on_start`` is called when a child process is ready to run the attempt.
        """
        job, task = attempt.job, attempt.task
        if task.batch:
            [only] = await self.run_batch([attempt], on_start)
            return only.outcome if isinstance(only, Settled) else only or release(job)
        token = enter(attempt)
        try:
            if self._registry.middlewares:
                async with self._registry.around(attempt):
                    result = await self._call(attempt, on_start)
            else:
                result = await self._call(attempt, on_start)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - even SystemExit fails only this job
            return self._verdicts.of_error(job, task, error)
        finally:
            leave(token)
        if isinstance(result, Outcome):
            return result
        return self._verdicts.of_value(job, task, result)

    async def run_batch(
        self,
        members: Sequence[Attempt],
        on_start: Callable[[Attempt], None] = lambda _attempt: None,
    ) -> CallResult:
        """Call a batch task once with these items; return what came of each.

        A single item always gets an outcome. Only a cancellation from outside is raised.
        """
        attempt, task = members[0], members[0].task
        jobs = attempt.jobs = tuple(one.job for one in members)
        token = enter(attempt)
        try:
            if self._registry.middlewares:
                async with self._registry.around(attempt):
                    return await self._call_batch(attempt, on_start)
            return await self._call_batch(attempt, on_start)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - even SystemExit fails only this batch
            return list(self._verdicts.of_batch_error(jobs, task, error))
        finally:
            leave(token)

    async def _call_batch(
        self, attempt: Attempt, on_start: Callable[[Attempt], None]
    ) -> CallResult:
        task, jobs = attempt.task, attempt.jobs
        if task.runner is not None:
            found = await task.runner.run(jobs)
            if len(found) != len(jobs) or (len(jobs) == 1 and found[0] is None):
                raise RuntimeError(f"the runner of {task.name} returned no outcome for some items")
            return found
        if self.in_child(attempt):
            alone = lifecycle.runs_alone(attempt.job)
            return list(await self._children.run_batch(attempt, on_start, alone=alone))
        batch = ItemBatch(task, jobs, self._verdicts)
        if not batch.jobs:
            return list(batch.outcomes(None))
        if task.execution is Execution.LOOP or (self._inline and is_async(task.function)):
            value = await task.function(batch.items)  # type: ignore[misc]
        elif self._inline:
            value = task.function(batch.items)
        else:
            context = contextvars.copy_context()
            value = await self._threads.run(
                lambda: context.run(task.function, batch.items),
                [(job.tenant, job.id) for job in jobs],
            )
        return list(batch.outcomes(value))

    def failed(self, attempt: Attempt, error: BaseException) -> Outcome:
        """Return the outcome of an attempt that was stopped from outside."""
        return self._verdicts.of_error(attempt.job, attempt.task, error)

    def batch_failed(self, jobs: Sequence[Job], error: BaseException) -> list[Outcome]:
        """Return the outcomes of a batch that was stopped from outside."""
        task = self._registry.tasks[jobs[0].task]
        return [self._verdicts.of_error(job, task, error) for job in jobs]

    async def close(self) -> None:
        """Close threads and child processes."""
        self._threads.close()
        await self._children.close()

    def _child_config(
        self, retry: RetryPolicy, memory_limit_bytes: int | None, cpu_limit_seconds: float | None
    ) -> ChildConfig:
        default_task = self._registry.default_task or SIMULATE
        return ChildConfig(
            self._registry.reference, retry, default_task, memory_limit_bytes, cpu_limit_seconds
        )

    async def _call(self, attempt: Attempt, on_start: Callable[[Attempt], None]) -> object:
        task, job = attempt.task, attempt.job
        if self.in_child(attempt):
            return await self._children.run(attempt, on_start, alone=lifecycle.runs_alone(job))
        args, kwargs = task.signature.arguments(job.payload)
        if task.execution is Execution.LOOP:
            return await task.function(*args, **kwargs)  # type: ignore[misc]
        call: Callable[[], object] = lambda: task.function(*args, **kwargs)
        if self._inline:
            value = call()
            return await value if is_async(task.function) else value  # type: ignore[misc]
        context = contextvars.copy_context()
        return await self._threads.run(lambda: context.run(call), [_key(attempt)])


def _key(attempt: Attempt) -> tuple[str, str]:
    return attempt.job.tenant, attempt.job.id
