"""Runs one attempt: on the event loop, in a thread, or in a child process."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

from holdfast.model import lifecycle
from holdfast.model.outcome import Outcome
from holdfast.model.retry import RetryPolicy

from .attempt import Attempt, enter, leave
from .builtin_tasks import SIMULATE
from .child_process import ChildConfig
from .children import Children
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
        inline: bool = False,
    ) -> None:
        self._registry = registry
        self._verdicts = Verdicts(registry.classifier, retry)
        self._inline = inline
        self._threads = ThreadPool()
        self._children = Children(self._child_config(retry, memory_limit_bytes))

    @property
    def abandoned_threads(self) -> int:
        """How many threads are held by attempts that timed out."""
        return self._threads.abandoned

    @property
    def child_kills(self) -> int:
        """How many child processes were killed while they ran a job."""
        return self._children.kills

    def change(self, retry: RetryPolicy, memory_limit_bytes: int | None) -> None:
        """Use another retry policy, and another memory limit for new child processes."""
        self._verdicts.default_policy = retry
        self._children.change(self._child_config(retry, memory_limit_bytes))

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

    def failed(self, attempt: Attempt, error: BaseException) -> Outcome:
        """Return the outcome of an attempt that was stopped from outside."""
        return self._verdicts.of_error(attempt.job, attempt.task, error)

    async def close(self) -> None:
        """Close threads and child processes."""
        self._threads.close()
        await self._children.close()

    def _child_config(self, retry: RetryPolicy, memory_limit_bytes: int | None) -> ChildConfig:
        default_task = self._registry.default_task or SIMULATE
        return ChildConfig(self._registry.reference, retry, default_task, memory_limit_bytes)

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
        return await self._threads.run(lambda: context.run(call), _key(attempt))


def _key(attempt: Attempt) -> tuple[str, str]:
    return attempt.job.tenant, attempt.job.id
