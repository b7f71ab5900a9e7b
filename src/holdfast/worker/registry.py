"""The tasks, schedules, hooks and middlewares that an application declares."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from holdfast.engines.contract import Engine
from holdfast.model.catalog import Catalog
from holdfast.model.durations import format_seconds
from holdfast.model.errors import InvalidInput, UnknownTask
from holdfast.model.failure import Classifier
from holdfast.model.job import DEFAULT_QUEUE, check_name
from holdfast.model.outage import base_queue, dependency_queue
from holdfast.model.signals import Retry
from holdfast.settings import NO_APPLICATION

from .batch_call import BatchRunner
from .item_signature import ItemSignature
from .outage_loop import HealthCheck
from .schedules import Schedule
from .signature import Signature

if TYPE_CHECKING:
    from holdfast.projections.declaration import Projection

    from .attempt import Attempt

Hook = Callable[[], Awaitable[None] | None]
Middleware = Callable[["Attempt"], AbstractAsyncContextManager[None]]


class Execution(enum.StrEnum):
    """Where a task runs."""

    LOOP = "async"
    """On the worker's event loop."""
    THREAD = "thread"
    """In a thread of the worker: for code that blocks."""
    PROCESS = "process"
    """In a child process: for CPU-bound code, or code that may hang."""


class TaskSpec(msgspec.Struct, frozen=True):
    """A task as it was declared. None: the setting applies."""

    name: str
    function: Callable[..., object]
    signature: Signature | ItemSignature
    execution: Execution
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    timeout_seconds: float | None = None
    retry: Retry | None = None
    estimated_seconds: float | None = None
    max_processing_seconds: float | None = None
    check: Callable[..., object] | None = None
    """Says whether a call would pass, without doing anything: for ``holdfast dead try``."""
    dependency: str = ""
    """What its jobs need, if it names that: they have queues of their own for it."""
    batch: int = 0
    """The most jobs that one call of a batch task gets; 0: it is called for each job."""
    linger_seconds: float = 0.0
    """How long a batch waits to become full."""
    runner: BatchRunner | None = None
    """Runs the batches instead of the function."""

    def queue_for(self, queue: str) -> str:
        """Return the queue for its jobs that are to go to this one."""
        if not self.dependency or base_queue(queue) != queue:
            return queue
        return dependency_queue(queue, self.dependency)


def check_times(spec: TaskSpec, cap_seconds: float | None = None, setting: str = "") -> None:
    """Raise ``InvalidInput`` if a task could not reach its own timeout.

    ``cap_seconds`` applies to a task without ``max_processing``; ``setting`` is its source.
    """
    cap_seconds = spec.max_processing_seconds or cap_seconds
    if cap_seconds is None:
        return
    cap = f"max_processing={format_seconds(cap_seconds)}"
    if spec.max_processing_seconds is None:
        cap = f"max_processing_seconds, which is {format_seconds(cap_seconds)} {setting}".strip()
    for field, seconds in (
        ("timeout", spec.timeout_seconds),
        ("estimated", spec.estimated_seconds),
    ):
        if seconds is not None and seconds > cap_seconds:
            raise InvalidInput(
                field,
                f"{field}={format_seconds(seconds)} of task {spec.name!r} is longer than {cap}: it "
                "would be reclaimed, and run again, before that. Raise the one or lower the other",
            )


class Registry:
    """Everything that one application declares."""

    def __init__(self, classifier: Classifier | None = None) -> None:
        self.tasks: dict[str, TaskSpec] = {}
        self.schedules: dict[str, Schedule] = {}
        self.on_start: list[Hook] = []
        self.on_stop: list[Hook] = []
        self.middlewares: list[Middleware] = []
        self.projections: dict[str, Projection] = {}
        self.health_checks: dict[str, HealthCheck] = {}
        """By dependency."""
        self.catalog = Catalog()
        """The event types that are declared in Python."""
        self.classifier = classifier or Classifier()
        self.adopt: Callable[[Engine | None], None] = lambda _engine: None
        """Sets the engine that tasks of this process enqueue with; None restores their own."""
        self.settings = NO_APPLICATION
        """The store and the settings file that the application names."""
        self.default_task = ""
        """The task of a job that names none and whose payload has no known ``type``."""
        self.reference: str | None = None
        """How a child process finds this application again: ``module:name`` or ``file.py:name``."""

    def add_task(self, spec: TaskSpec) -> None:
        """Register a task; its name must be new."""
        check_name("task", spec.name)
        check_times(spec)
        other = self.tasks.get(spec.name)
        if other is not None and not _same_source(other.function, spec.function):
            raise InvalidInput(
                "name",
                f"two tasks are named {spec.name!r} ({_where(other.function)} and "
                f"{_where(spec.function)}): give one of them another name=",
            )
        self.tasks[spec.name] = spec

    def add_schedule(self, schedule: Schedule) -> None:
        """Register a schedule; its name must be new."""
        if schedule.name in self.schedules:
            raise InvalidInput("name", f"two schedules are named {schedule.name!r}")
        self.schedules[schedule.name] = schedule

    def add_projection(self, projection: Projection) -> None:
        """Register a projection; its name and its table must be new."""
        projection.check()
        for other in self.projections.values():
            if other.name == projection.name:
                raise InvalidInput("projection", f"two projections are named {projection.name!r}")
            if other.table.name == projection.table.name:
                both = f"{other.name} and {projection.name}"
                raise InvalidInput("table", f"{both} have one table, {other.table.name}")
        self.projections[projection.name] = projection

    def add_health_check(self, dependency: str, check: HealthCheck) -> None:
        """Register the health check of a dependency; there may be one."""
        check_name("dependency", dependency)
        if dependency in self.health_checks:
            raise InvalidInput("dependency", f"{dependency!r} has two health checks")
        self.health_checks[dependency] = check

    def task(self, name: str) -> TaskSpec:
        """Return the task of this name, or raise ``UnknownTask``."""
        spec = self.tasks.get(name)
        if spec is None:
            raise UnknownTask(name, self.tasks)
        return spec

    @property
    def single_tasks(self) -> list[str]:
        """The names of the tasks that are called for each job."""
        return [name for name, spec in self.tasks.items() if not spec.batch]

    @property
    def queues(self) -> list[str]:
        """Every queue that a task or schedule names, and the default one."""
        named = [spec.queue for spec in self.tasks.values()]
        named += [schedule.queue for schedule in self.schedules.values()]
        return list(dict.fromkeys([DEFAULT_QUEUE, *named]))

    def around(self, attempt: Attempt) -> AbstractAsyncContextManager[None]:
        """Return all middlewares around this attempt, the first one outermost."""
        return _nested(self.middlewares, attempt)


def execution_of(function: Callable[..., object], run_in: str | None) -> Execution:
    """Return where the function runs: coroutines on the loop, others in a thread."""
    if run_in is not None:
        try:
            wanted = Execution(run_in)
        except ValueError:
            words = ", ".join(Execution)
            raise InvalidInput("run_in", f"{run_in!r} is not one of {words}") from None
        if wanted is Execution.THREAD and is_async(function):
            raise InvalidInput("run_in", "a coroutine function runs on the loop or in a process")
        if wanted is Execution.LOOP and not is_async(function):
            raise InvalidInput("run_in", "a plain function would block the loop: make it async")
        return wanted
    return Execution.LOOP if is_async(function) else Execution.THREAD


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it makes a coroutine."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is inspected
    )


@asynccontextmanager
async def _nested(middlewares: list[Middleware], attempt: Attempt) -> AsyncIterator[None]:
    if not middlewares:
        yield
        return
    async with middlewares[0](attempt), _nested(middlewares[1:], attempt):
        yield


def _where(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{getattr(function, '__qualname__', '?')}"


def _same_source(one: Callable[..., object], other: Callable[..., object]) -> bool:
    """Whether both are one function that was imported twice, as by a reload."""
    code, other_code = getattr(one, "__code__", None), getattr(other, "__code__", None)
    return (
        code is not None
        and other_code is not None
        and (code.co_filename, code.co_firstlineno)
        == (other_code.co_filename, other_code.co_firstlineno)
    )
