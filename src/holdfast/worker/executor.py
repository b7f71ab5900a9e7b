"""Runs one attempt where its task belongs: on the loop, in a thread, in a child process."""

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
    """Runs attempts and judges them. ``inline`` runs everything on the loop, for tests."""

    def __init__(
        self,
        definition: Registry,
        retry: RetryPolicy,
        *,
        memory_limit_bytes: int | None = None,
        inline: bool = False,
    ) -> None:
        self._definition = definition
        self._verdicts = Verdicts(definition.classifier, retry)
        self._inline = inline
        self._threads = ThreadPool()
        self._children = Children(self._charter(retry, memory_limit_bytes))

    @property
    def abandoned_threads(self) -> int:
        """How many threads are held by attempts that timed out."""
        return self._threads.abandoned

    @property
    def child_kills(self) -> int:
        """How many child processes were killed over their job."""
        return self._children.kills

    def change(self, retry: RetryPolicy, memory_limit_bytes: int | None) -> None:
        """Judge by another policy from now on, and limit child processes that begin otherwise."""
        self._verdicts.default_policy = retry
        self._children.change(self._charter(retry, memory_limit_bytes))

    def in_child(self, attempt: Attempt) -> bool:
        """Whether it runs in a child process."""
        if self._inline:
            return False
        return attempt.task.execution is Execution.PROCESS or lifecycle.runs_alone(attempt.job)

    async def run(
        self, attempt: Attempt, began: Callable[[Attempt], None] = lambda _attempt: None
    ) -> Outcome:
        """Run it to its outcome. Only cancellation from outside gets out of here.

        ``began`` is called when an attempt in a child process really begins.
        """
        job, task = attempt.job, attempt.task
        token = enter(attempt)
        try:
            if self._definition.middlewares:
                async with self._definition.around(attempt):
                    result = await self._call(attempt, began)
            else:
                result = await self._call(attempt, began)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit too is only this job's failure
            return self._verdicts.of_error(job, task, error)
        finally:
            leave(token)
        if isinstance(result, Outcome):
            return result
        return self._verdicts.of_value(job, task, result)

    def failed(self, attempt: Attempt, error: BaseException) -> Outcome:
        """Return the outcome of an attempt that was ended from outside."""
        return self._verdicts.of_error(attempt.job, attempt.task, error)

    async def close(self) -> None:
        """Let go of threads and children."""
        self._threads.close()
        await self._children.close()

    def _charter(self, retry: RetryPolicy, memory_limit_bytes: int | None) -> ChildConfig:
        default_task = self._definition.default_task or SIMULATE
        return ChildConfig(self._definition.reference, retry, default_task, memory_limit_bytes)

    async def _call(self, attempt: Attempt, began: Callable[[Attempt], None]) -> object:
        task, job = attempt.task, attempt.job
        if self.in_child(attempt):
            return await self._children.run(attempt, began, alone=lifecycle.runs_alone(job))
        args, kwargs = task.signature.arguments(job.payload)
        if task.execution is Execution.LOOP:
            return await task.function(*args, **kwargs)  # type: ignore[misc]
        call: Callable[[], object] = lambda: task.function(*args, **kwargs)
        if self._inline:
            value = call()
            return await value if is_async(task.function) else value  # type: ignore[misc]
        context = contextvars.copy_context()
        return await self._threads.run(lambda: context.run(call))
