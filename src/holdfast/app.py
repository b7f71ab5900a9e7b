"""The application that users create, declare tasks on, and run."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, ParamSpec, Protocol, TypeVar, overload

from msgspec.structs import replace

from .binding import Binding
from .engines.contract import Receipt
from .model.durations import Duration, seconds_of
from .model.errors import InvalidInput
from .model.failure import Classifier
from .model.job import (
    DEFAULT_QUEUE,
    MAX_LEASE_SECONDS,
    MAX_TIME_US,
    MICROSECONDS,
    NewJob,
    check_seconds,
    encode_payload,
)
from .model.signals import Retry
from .settings import LoadedSettings, Settings, load
from .task import JobHandle, Task, handles
from .worker.registry import (
    Hook,
    Middleware,
    Registry,
    TaskSpec,
    execution_of,
)
from .worker.schedules import Missed, Overlap, Schedule
from .worker.signature import Signature

if TYPE_CHECKING:
    from .testing.app import Rehearsal

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound=Hook)
M = TypeVar("M", bound=Middleware)


class TaskDecorator(Protocol):
    """A decorator that makes functions tasks."""

    def __call__(self, function: Callable[P, R], /) -> Task[P, R]:
        """Make this function a task."""


class Holdfast:
    """An application.

    ``store`` is where jobs are stored; by default ``HOLDFAST_STORE``, the settings file, or
    ``./data``. With ``own`` this process owns the store and uses it directly; otherwise it
    connects to the process that owns it, usually ``holdfast run``.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        own: bool = False,
        config: str | None = None,
        classifier: Classifier | None = None,
    ) -> None:
        self.registry = Registry(classifier)
        self._flags = {"store": None if store is None else os.fspath(store)}
        self._config = config
        self._settings: Settings | None = None
        self._binding = Binding(lambda: self.settings, own=own)
        self.registry.adopt = self._binding.adopt

    @property
    def settings(self) -> Settings:
        """The settings, read when they are first needed."""
        if self._settings is None:
            self._settings = load(self._config, environ=os.environ, flags=self._flags).settings
        return self._settings

    # --- declare -----------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        run_in: Literal["async", "thread", "process"] | None = None,
        estimated: Duration | None = None,
        max_processing: Duration | None = None,
    ) -> TaskDecorator: ...

    def task(
        self,
        function: Callable[..., object] | None = None,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        run_in: Literal["async", "thread", "process"] | None = None,
        estimated: Duration | None = None,
        max_processing: Duration | None = None,
    ) -> object:
        """Make a function a task. Coroutines run on the loop, plain functions in threads.

        ``run_in="process"`` is for CPU-bound code, or code that may hang: a timeout kills it.
        ``estimated`` is the first lease; ``max_processing`` limits all of them together.
        """

        def declare(declared: Callable[P, R]) -> Task[P, R]:
            label = str(name or getattr(declared, "__name__", ""))
            spec = TaskSpec(
                name=label,
                function=declared,
                signature=Signature(declared, label),
                execution=execution_of(declared, run_in),
                queue=queue,
                priority=priority,
                timeout_seconds=_seconds("timeout", timeout),
                retry=retry,
                estimated_seconds=_seconds("estimated", estimated, MAX_LEASE_SECONDS),
                max_processing_seconds=_seconds("max_processing", max_processing),
            )
            self.registry.add_task(spec)
            return Task(declared, spec, self._binding, lambda: self.settings.max_attempts)

        return declare if function is None else declare(function)

    def cron(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        name: str | None = None,
        missed: Missed = "latest",
        overlap: Overlap = "skip",
        catch_up: Duration = 600.0,
        arguments: Mapping[str, object] | None = None,
    ) -> Callable[[Task[P, R]], Task[P, R]]:
        """Run a task at every tick of a cron expression; put it above ``@app.task``.

        Each tick is one job, even with many processes and restarts. For missed and overlapping
        ticks, and daylight saving, see ``Schedule``.
        """

        def declare(task: Task[P, R]) -> Task[P, R]:
            if not isinstance(task, Task):
                raise InvalidInput("cron", "put @app.cron(...) above @app.task")
            spec = task.spec
            budget = spec.retry.max_attempts if spec.retry is not None else None
            self.registry.add_schedule(
                Schedule(
                    name=name or spec.name,
                    expression=expression,
                    time_zone=tz,
                    task=spec.name,
                    payload=spec.signature.encode((), dict(arguments or {})),
                    queue=spec.queue,
                    priority=spec.priority,
                    max_attempts=budget or self.settings.max_attempts,
                    missed=missed,
                    overlap=overlap,
                    catch_up_seconds=seconds_of("catch_up", catch_up),
                )
            )
            return task

        return declare

    def on_start(self, hook: H) -> H:
        """Call this when a worker process starts, before its first job."""
        self.registry.on_start.append(hook)
        return hook

    def on_stop(self, hook: H) -> H:
        """Call this when a worker process has drained."""
        self.registry.on_stop.append(hook)
        return hook

    def middleware(self, around: M) -> M:
        """Put an async context manager around every attempt: ``around(attempt)``."""
        self.registry.middlewares.append(around)
        return around

    # --- use ---------------------------------------------------------------------------------

    async def enqueue(
        self,
        task: str,
        payload: Mapping[str, object] | None = None,
        *,
        queue: str | None = None,
        connection: object = None,
    ) -> JobHandle:
        """Enqueue a task by name: for processes that do not have its code.

        With ``connection``, in the transaction of that connection: see ``Task.options``.
        """
        job = self._named(task, payload, queue)
        receipts: list[Receipt]
        if connection is not None:
            receipts = await self._binding.enqueue_in_transaction(connection, [job])
        else:
            receipts = await self._binding.call(lambda engine: engine.enqueue([job]))
        return handles(receipts, job.tenant, self._binding)[0]

    def job(self, job_id: str, tenant: str = "default") -> JobHandle:
        """Return a handle to a job by its id, without checking that it exists."""
        return JobHandle(job_id, tenant, self._binding)

    async def close(self) -> None:
        """Close the connection to the store."""
        await self._binding.close()

    def close_sync(self) -> None:
        """Do what ``close`` does, from synchronous code."""
        self._binding.close_sync()

    def run(self, **flags: object) -> int:
        """Own the store and run jobs until stopped, as ``holdfast run``; return the exit code."""
        from .cli.commands.run import run  # noqa: PLC0415 - imports a web server

        self.registry.reference = self.registry.reference or self._main_reference()
        loaded = lambda: load(self._config, environ=os.environ, flags={**self._flags, **flags})
        return run(loaded, None, self.registry)

    @asynccontextmanager
    async def running(self, **flags: object) -> AsyncIterator[Holdfast]:
        """Own the store and run jobs on this event loop, as in a web application's lifespan.

        Signals are left alone and no metrics port is opened unless ``metrics_port`` is given.
        """
        from .daemon.daemon import Daemon  # noqa: PLC0415 - imports a web server

        self.registry.reference = self.registry.reference or self._main_reference()
        wanted = {"metrics_port": "off", **self._flags, **flags}

        def read() -> LoadedSettings:
            return load(self._config, environ=os.environ, flags=wanted)

        loaded = read()
        daemon = Daemon(
            self.registry,
            loaded.settings,
            adopt=self.registry.adopt,
            origins=loaded.origins,
            reload=read,
        )
        await daemon.start()
        try:
            yield self
        finally:
            await daemon.stop()

    def testing(self) -> Rehearsal:
        """Run everything in this thread, in virtual time: see ``testing.app.Rehearsal``."""
        from .testing.app import Rehearsal  # noqa: PLC0415 - for tests

        return Rehearsal(self.registry, self._binding)

    def _named(self, task: str, payload: Mapping[str, object] | None, queue: str | None) -> NewJob:
        job = NewJob(
            task=task,
            payload={} if payload is None else payload,
            queue=DEFAULT_QUEUE if queue is None else queue,
            max_attempts=self.settings.max_attempts,
        )
        spec = self.registry.tasks.get(task)
        if spec is None:
            return job
        encoded = encode_payload(job.payload)
        spec.signature.check(encoded)
        budget = spec.retry.max_attempts if spec.retry is not None else None
        return replace(
            job,
            payload=encoded,
            queue=spec.queue if queue is None else queue,
            priority=spec.priority,
            max_attempts=budget or job.max_attempts,
            estimated_seconds=spec.estimated_seconds,
            max_processing_seconds=spec.max_processing_seconds,
        )

    def _main_reference(self) -> str | None:
        """Return a reference to this application: the module that has it as an attribute."""
        for name, module in list(sys.modules.items()):
            for attribute, value in list(getattr(module, "__dict__", {}).items()):
                if value is self:
                    file = getattr(module, "__file__", None)
                    if name != "__main__":
                        return f"{name}:{attribute}"
                    return f"{Path(file).resolve()}:{attribute}" if file else None
        return None


def _seconds(
    field: str, value: Duration | None, most: float = MAX_TIME_US / MICROSECONDS
) -> float | None:
    return None if value is None else check_seconds(field, seconds_of(field, value), most)
