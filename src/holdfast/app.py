"""The application that users create, declare tasks on, and run."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from msgspec.structs import replace

from .binding import Binding
from .call import Call, CallBatch
from .engines.contract import OnDuplicate
from .engines.structured_log import StructuredLog
from .event_appender import CallerOptions, EventAppender, EventOptions, acting
from .event_handle import EventHandle, wait_for_all, wait_for_all_sync
from .job_handle import JobHandle, handle_of
from .model.actor import Actor
from .model.catalog import Catalog
from .model.catalog_document import coalesce_of, retention_of
from .model.durations import Duration, seconds_of
from .model.errors import InvalidInput, PayloadInvalid
from .model.event import NewEvent
from .model.event_rules import rule_of_function, rules_of_class
from .model.event_schema import EventSchema
from .model.event_type import Change, EventType
from .model.failure import Classifier
from .model.job import (
    DEFAULT_QUEUE,
    MAX_LEASE_SECONDS,
    MAX_TIME_US,
    MICROSECONDS,
    NewJob,
    check_seconds,
    check_size,
    encode_payload,
)
from .model.outage import check_dependency, dependency_queue
from .model.read_model import ReadModel, Row, Value
from .model.signals import Retry
from .model.upcasting import Upcaster
from .projections.declaration import DEFAULT_BATCH as DEFAULT_PROJECTION_BATCH
from .projections.declaration import (
    DEFAULT_LAG_SLO_SECONDS,
    ApplyEvents,
    OnFailure,
    Projection,
)
from .row_reader import RowReader
from .settings import ApplicationSettings, LoadedSettings, Settings, load
from .task import BatchTask, Task
from .worker.item_signature import ItemSignature
from .worker.outage_loop import DEFAULT_HEALTH_CHECK_SECONDS, HealthCheck
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

log = StructuredLog("holdfast.daemon")

MAX_BATCH = 5_000
"""The most items that one call of a batch task may get."""
MAX_LINGER_SECONDS = 10.0
"""The longest time for which a batch waits: less than a lease."""

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - an item
T = TypeVar("T")
C = TypeVar("C", bound=Callable[[], object])
H = TypeVar("H", bound=Hook)
M = TypeVar("M", bound=Middleware)
E = TypeVar("E", bound=type)
U = TypeVar("U", bound=Upcaster)


class TaskDecorator(Protocol):
    """A decorator that makes functions tasks."""

    def __call__(self, function: Callable[P, R], /) -> Task[P, R]:
        """Make this function a task."""


class BatchDecorator(Protocol):
    """A decorator that makes functions batch tasks."""

    @overload
    def __call__(
        self, function: Callable[[list[I]], Coroutine[Any, Any, None]], /
    ) -> BatchTask[I, None, Coroutine[Any, Any, None]]: ...

    @overload
    def __call__(
        self, function: Callable[[list[I]], Coroutine[Any, Any, Sequence[R]]], /
    ) -> BatchTask[I, R, Coroutine[Any, Any, Sequence[R]]]: ...

    @overload
    def __call__(self, function: Callable[[list[I]], None], /) -> BatchTask[I, None, None]: ...

    @overload
    def __call__(
        self, function: Callable[[list[I]], Sequence[R]], /
    ) -> BatchTask[I, R, Sequence[R]]: ...

    def __call__(self, function: Any, /) -> Any:
        """Make this function a batch task."""


class Holdfast:
    """An application: it declares tasks, enqueues jobs and runs them.

    ``store`` is where jobs are stored: by default ``HOLDFAST_STORE``, the settings file, or
    ``./data``. ``config`` is the settings file: by default ``./configs/default.yaml`` if it exists.
    ``holdfast run`` of this application uses the same two. With ``own`` this process owns the store
    and uses it directly; otherwise it connects to the process that owns it, usually
    ``holdfast run``. ``key`` is for a store at ``https://host:port``: without it,
    ``HOLDFAST_API_KEY`` or the setting ``api_key_file`` has it. ``classifier`` decides what
    failures mean; see ``Classifier``.
    """

    registry: Registry
    """The tasks, schedules, hooks and middlewares that were declared."""

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        own: bool = False,
        config: str | None = None,
        key: str | None = None,
        classifier: Classifier | None = None,
    ) -> None:
        self.registry = Registry(classifier)
        self.registry.settings = ApplicationSettings(
            None if store is None else os.fspath(store), config, key
        )
        self._settings: Settings | None = None
        self._binding = Binding(lambda: self.settings, own=own, key=key)
        self.registry.adopt = self._binding.adopt
        self._events = EventAppender(self.registry, lambda: self.settings, self._binding)
        self._rows = RowReader(self.registry, lambda: self.settings, self._binding)

    @property
    def settings(self) -> Settings:
        """The settings, read when they are first needed."""
        if self._settings is None:
            self._settings = self._load({}).settings
        return self._settings

    def _load(self, flags: Mapping[str, object]) -> LoadedSettings:
        return load(environ=os.environ, flags=flags, application=self.registry.settings)

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
        check: Callable[..., object] | None = None,
        dependency: str | None = None,
    ) -> TaskDecorator: ...

    @overload
    def task(
        self,
        *,
        batch: int,
        linger: Duration = 0.0,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        run_in: Literal["async", "thread", "process"] | None = None,
        estimated: Duration | None = None,
        max_processing: Duration | None = None,
        check: Callable[..., object] | None = None,
        dependency: str | None = None,
    ) -> BatchDecorator: ...

    def task(
        self,
        function: Callable[..., object] | None = None,
        *,
        batch: int | None = None,
        linger: Duration = 0.0,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        run_in: Literal["async", "thread", "process"] | None = None,
        estimated: Duration | None = None,
        max_processing: Duration | None = None,
        check: Callable[..., object] | None = None,
        dependency: str | None = None,
    ) -> object:
        """Make a function a task: ``@app.task``, or ``@app.task(...)`` with these arguments.

        ``name`` is how jobs name the task; by default the function's name. ``queue`` and
        ``priority`` (higher is sooner) are those of its jobs, unless their options say otherwise.
        ``timeout`` ends an attempt, and ``retry`` says how often and when the next one comes; by
        default the settings do. ``run_in`` is where it runs: coroutines on the event loop
        (``"async"``), plain functions in a ``"thread"``; ``"process"`` is for CPU-bound code, or
        code that may hang: a time-out kills it. ``estimated`` is how long the first lease of a job
        lasts, and ``max_processing`` how long a job may be held, heartbeats or not; by default
        the time-out and a minute more. ``dependency`` names what the task needs, such as
        ``"payments-api"``: its jobs go to a queue of their own, ``<queue>@payments-api``, which
        whoever serves ``<queue>`` serves too, and which waits while that dependency is out.
        ``check`` is for ``holdfast dead try``: a function, async or not, that gets the arguments
        of a dead letter and raises if the task would fail with them. It must change nothing.

        With ``batch`` the function is called with a list of up to that many items, one for each
        job, and ``linger`` is how long a batch waits to become full. It returns None, or a list
        with a result or an exception for each item; or it raises, for all items or, with
        ``BatchError``, for those that it names.

        Raise ``InvalidInput`` if a parameter of the function is of a type that JSON cannot carry.
        """
        linger_seconds = _check_options(check, batch, linger)

        fields: dict[str, Any] = {
            "priority": priority,
            "timeout_seconds": _seconds("timeout", timeout),
            "retry": retry,
            "estimated_seconds": _seconds("estimated", estimated, MAX_LEASE_SECONDS),
            "max_processing_seconds": _seconds("max_processing", max_processing),
            "check": check,
            "dependency": dependency or "",
            "batch": batch or 0,
            "linger_seconds": linger_seconds,
        }

        def declare(declared: Callable[P, R]) -> Task[P, R]:
            spec = _spec_of(declared, name, queue, run_in, fields)
            self.registry.add_task(spec)
            make: type[Task[P, R]] = Task if batch is None else BatchTask  # type: ignore[assignment]
            return make(declared, spec, self._binding, lambda: self.settings.max_attempts)

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

        ``expression`` has five fields, or six with seconds, in the time zone ``tz``. ``name`` is
        the schedule's; by default the task's. ``arguments`` are those of every call, by name. Each
        tick is one job, even with many processes and restarts.

        Ticks that no process saw in time are missed. Of those not older than ``catch_up``,
        ``missed="latest"`` runs the newest, ``"all"`` each, ``"skip"`` none. With
        ``overlap="skip"`` a tick is dropped while the job of an earlier one is unfinished;
        ``"allow"`` runs it. A time of day that daylight saving skips runs at the end of the gap,
        one that it repeats runs once.
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

    def event(
        self,
        name: str,
        *,
        entity: str,
        version: int = 1,
        entity_id: str | None = None,
        description: str | None = None,
        text: str | None = None,
        key: str | None = None,
        change: Change = "optional",
        sensitive: Sequence[str] = (),
        retention: Duration | None = None,
        coalesce: Mapping[str, object] | None = None,
        rules: Sequence[Callable[..., object]] = (),
    ) -> Callable[[E], E]:
        """Declare the event type ``name``: above a dataclass, a Struct or a pydantic model.

        The class is the schema of ``version``; ``upcast`` declares how earlier ones are read.
        ``entity`` is the kind of thing that events are about, and ``entity_id`` the field with its
        id: by default ``<entity>_id``, if the class has it. ``description`` is by default the
        docstring. ``text`` is what an event says to people, such as
        ``"{actor} renamed {entity} to {after.title}"``. Events of one ``key``, such as
        ``"library:{library_id}"``, are projected in order; by default those of one entity.

        ``change`` says what an event must have: ``"before"``, ``"after"``, ``"before_and_after"``,
        ``"diff"``, ``"any"`` of them, or nothing (``"optional"``). Fields of the class with these
        names are stored as such. The ``sensitive`` fields are hidden from people. ``retention`` is
        how long events are kept, by default for ever; ``coalesce`` is which of them are one:
        ``{"window": "5m", "by": ["page"]}``. ``rules`` are functions of the event that raise
        ``ValueError``; methods with ``@holdfast.rule`` are rules too.

        Raise ``InvalidInput`` if something is wrong with the declaration.
        """

        def declare(kind: E) -> E:
            self.registry.catalog.add(
                EventType(
                    name,
                    EventSchema(kind, name),
                    entity=entity,
                    version=version,
                    description=_described(kind) if description is None else description,
                    entity_id=entity_id,
                    key=key,
                    text=text,
                    change=change,
                    sensitive=tuple(sensitive),
                    retention_seconds=retention_of(retention),
                    coalesce=coalesce_of(coalesce),
                    rules=(*rules_of_class(kind), *map(rule_of_function, rules)),
                    source=f"{kind.__module__}.{kind.__qualname__}",
                )
            )
            return kind

        return declare

    def upcast(
        self, event: type, *, from_version: int, schema: type | None = None
    ) -> Callable[[U], U]:
        """Declare how data of ``from_version`` of an ``event`` class becomes that of the next one.

        The function gets the data as a dict, with ``before``, ``after`` and ``diff`` if there are,
        and returns it. It must not do anything else: it is called whenever such an event is read.
        ``schema`` is the class of that version, which events that are still appended must fit.
        """

        def declare(function: U) -> U:
            declared = self.registry.catalog.type_of(event)
            old = None if schema is None else EventSchema(schema, declared.name)
            declared.add_upcaster(from_version, function, old)
            return function

        return declare

    def projection(
        self,
        name: str,
        *,
        table: ReadModel,
        events: Iterable[str | type] = (),
        version: int = 1,
        previous: Projection | None = None,
        batch: int = DEFAULT_PROJECTION_BATCH,
        on_failure: OnFailure = "hold",
        lag_slo: Duration = DEFAULT_LAG_SLO_SECONDS,
    ) -> Callable[[ApplyEvents], Projection]:
        """Make a function the projection ``name``: it changes rows of ``table`` for events.

        It is called with a list of up to ``batch`` events and the rows, in a thread; what it raises
        undoes all of it, and the events are applied in smaller parts until the one to blame is
        alone. Those of one key come in their order.
        ``events`` are classes of ``@app.event`` or names of event types; none: all. Raise
        ``version`` when what is in the table changes, and rebuild; with ``previous``, the
        projection of the version before, the live table is kept up by that until then. With
        ``on_failure="skip"`` later events of a key go on without one that failed. ``lag_slo`` is
        how far behind it may be before an alert says so.
        """

        def declare(apply: ApplyEvents) -> Projection:
            projection = Projection(
                name=name,
                table=table,
                apply=apply,
                event_types=tuple(
                    one if isinstance(one, str) else self.registry.catalog.type_of(one).name
                    for one in events
                ),
                version=version,
                previous=previous,
                batch=batch,
                on_failure=on_failure,
                lag_slo_seconds=seconds_of("lag_slo", lag_slo),
            )
            self.registry.add_projection(projection)
            return projection

        return declare

    def on_start(self, hook: H) -> H:
        """Call ``hook`` when a worker process starts, before its first job; it may be async."""
        self.registry.on_start.append(hook)
        return hook

    def on_stop(self, hook: H) -> H:
        """Call ``hook`` when a worker process has drained; it may be async."""
        self.registry.on_stop.append(hook)
        return hook

    def middleware(self, around: M) -> M:
        """Put the async context manager ``around(attempt)`` around every attempt."""
        self.registry.middlewares.append(around)
        return around

    def health_check(
        self, dependency: str, *, timeout: Duration = DEFAULT_HEALTH_CHECK_SECONDS
    ) -> Callable[[C], C]:
        """Probe ``dependency`` by this function while it is out, instead of by one of its jobs.

        It tells that the dependency does not work by raising, by returning False, or by taking
        longer than ``timeout``. It may be async; a plain function runs in a thread.
        """

        def declare(function: C) -> C:
            check_dependency(dependency)
            seconds = check_seconds("timeout", seconds_of("timeout", timeout))
            self.registry.add_health_check(dependency, HealthCheck(function, seconds))
            return function

        return declare

    # --- use ---------------------------------------------------------------------------------

    async def enqueue(
        self,
        task: str,
        payload: Mapping[str, object] | None = None,
        *,
        id: str | None = None,  # noqa: A002 - it is the job's id
        queue: str | None = None,
        on_duplicate: OnDuplicate = "refuse",
        connection: object = None,
    ) -> JobHandle[object]:
        """Enqueue ``task`` by its name: for processes that do not have its code.

        ``payload`` has the arguments by name, ``queue`` is by default the task's own if it is
        declared here. If the task is declared here they are checked as in
        ``Task.enqueue``; if not, only what JSON carries unchanged is accepted. For ``id``,
        ``on_duplicate`` and ``connection`` see ``Task.options``.
        """
        job = self._named(task, payload, id, queue)
        [receipt] = await self._binding.enqueue([job], on_duplicate, connection)
        return handle_of(receipt, job.tenant, self._binding)

    async def enqueue_all(
        self,
        calls: Iterable[Call[T]],
        *,
        on_duplicate: OnDuplicate | None = None,
        connection: object = None,
    ) -> list[JobHandle[T]]:
        """Enqueue ``calls`` of different tasks, all or none, in one commit; return their handles.

        ``task.call(...)`` makes a call, ``task.options(...).call(...)`` one with an id, a key and
        other options of its own. A call may depend on an earlier one of the list by the call
        itself: ``options(depends_on=[first])``. For ``on_duplicate`` and ``connection`` see
        ``Task.options``; they apply to the whole list.
        """
        batch = CallBatch(calls, self._binding, on_duplicate, connection)
        receipts = await self._binding.enqueue(batch.jobs, batch.on_duplicate, batch.connection)
        return batch.handles(receipts)

    def enqueue_all_sync(
        self,
        calls: Iterable[Call[T]],
        *,
        on_duplicate: OnDuplicate | None = None,
        connection: object = None,
    ) -> list[JobHandle[T]]:
        """Do what ``enqueue_all`` does, from synchronous code."""
        batch = CallBatch(calls, self._binding, on_duplicate, connection)
        receipts = self._binding.enqueue_sync(batch.jobs, batch.on_duplicate, batch.connection)
        return batch.handles(receipts)

    @property
    def catalog(self) -> Catalog:
        """The event types that are declared here, and those of the catalog files."""
        return self._events.catalog

    async def append(
        self, event: object, *, connection: object = None, **options: Unpack[EventOptions]
    ) -> EventHandle:
        """Append an event; it is durable when this returns, and so is its work for projections.

        ``event`` is an object of a class with ``@app.event``; or a mapping in the words of the
        columns (``event_type``, ``payload``, …), for types of catalog files; or what ``new_event``
        returned. ``options`` are what it says beside its data: ``actor``, ``reason``, ``tenant``,
        ``scope``, ``request_id``, ``occurred_at``, ``event_id``, ``entity_id``, ``before``,
        ``after``, ``diff`` and others. Who acts comes from ``actor`` or ``acting_as``, never from
        the data. With ``connection`` it is part of your transaction; see ``Task.options``.

        Raise ``UnknownEventType``, ``EventInvalid`` naming the field, ``EventConflict`` if the
        ``event_id`` was used for another content, ``StorageFull`` or ``Unavailable``.
        """
        [handle] = await self._events.append([self._events.new_event(event, options)], connection)
        return handle

    def append_sync(
        self, event: object, *, connection: object = None, **options: Unpack[EventOptions]
    ) -> EventHandle:
        """Do what ``append`` does, from synchronous code."""
        new = self._events.new_event(event, options)
        return self._events.append_sync([new], connection)[0]

    async def append_many(
        self,
        events: Iterable[object],
        *,
        atomic: bool = True,
        connection: object = None,
        **options: Unpack[CallerOptions],
    ) -> list[EventHandle]:
        """Append these ``events``, all or none, in one commit of up to 1,000.

        With ``atomic=False`` there may be more: each 1,000 are a commit. All are checked before the
        first is stored. ``options`` say who acts and for which request, of all of them; to give one
        of them an id, a reason or others of its own, pass ``app.new_event(...)``. For
        ``connection`` see ``append``.
        """
        new = self._events.new_events(events, options, atomic=atomic)
        return await self._events.append(new, connection)

    def append_many_sync(
        self,
        events: Iterable[object],
        *,
        atomic: bool = True,
        connection: object = None,
        **options: Unpack[CallerOptions],
    ) -> list[EventHandle]:
        """Do what ``append_many`` does, from synchronous code."""
        new = self._events.new_events(events, options, atomic=atomic)
        return self._events.append_sync(new, connection)

    async def wait_until_projected(
        self,
        events: Iterable[EventHandle],
        projection: str,
        timeout: Duration | None = None,  # noqa: ASYNC109
    ) -> None:
        """Return when readers of ``projection`` see all these ``events``; see ``EventHandle.wait``.

        If it takes longer than ``timeout``, raise ``ResultTimeout``.
        """
        await wait_for_all(events, projection, timeout, self._binding)

    def wait_until_projected_sync(
        self, events: Iterable[EventHandle], projection: str, timeout: Duration | None = None
    ) -> None:
        """Do what ``wait_until_projected`` does, from synchronous code."""
        wait_for_all_sync(events, projection, timeout, self._binding)

    async def rows(
        self,
        projection: str,
        where: Mapping[str, Value] | None = None,
        *,
        search: str = "",
        order: str = "",
        limit: int = 100,
    ) -> list[Row]:
        """Return rows of the table of ``projection``, as its readers see them at this moment.

        ``where`` has the values that columns must have; a list: one of these. ``search`` are words
        that its full text must have, ``order`` a column (``"title"``, the other way round
        ``"-title"``; rows that are equal in it come by their key), ``limit`` how many, up to 1,001.
        As long as no worker has made the table there are no rows. Nothing is hidden: that a column
        was filled from a sensitive field is for the caller to know.

        Raise ``UnknownProjection``, or ``InvalidInput`` naming a column that does not exist or a
        value that is not one of its column.
        """
        return await self._rows.rows(projection, where, search=search, order=order, limit=limit)

    def rows_sync(
        self,
        projection: str,
        where: Mapping[str, Value] | None = None,
        *,
        search: str = "",
        order: str = "",
        limit: int = 100,
    ) -> list[Row]:
        """Do what ``rows`` does, from synchronous code."""
        return self._rows.rows_sync(projection, where, search=search, order=order, limit=limit)

    def new_event(self, event: object, **options: Unpack[EventOptions]) -> NewEvent:
        """Return an ``event`` with these ``options`` for ``append_many``; nothing is stored.

        It is checked as in ``append``.
        """
        return self._events.new_event(event, options)

    def acting_as(
        self, actor_type: str, actor_id: str, name: str = "", **options: Unpack[CallerOptions]
    ) -> AbstractContextManager[None]:
        """Return a context manager: events that are appended inside are by this actor.

        ``actor_type`` is ``"user"``, ``"service"`` or a word of yours, ``actor_id`` who it is, and
        ``name`` how people know them. ``options`` are the request, the tenant and others. It is for
        the code of one request or task, with its threads and tasks if they are given its context.
        """
        return acting(Actor.of(Actor(actor_id, actor_type, name)), options)

    def job(self, job_id: str, tenant: str = "default") -> JobHandle[object]:
        """Return a handle to the job ``job_id`` of ``tenant``, without checking that it exists."""
        return JobHandle(job_id, tenant, self._binding)

    async def close(self) -> None:
        """Close the connection to the store."""
        await self._binding.close()

    def close_sync(self) -> None:
        """Do what ``close`` does, from synchronous code."""
        self._binding.close_sync()

    def run(self, **flags: object) -> int:
        """Own the store and run jobs until stopped, as ``holdfast run``; return the exit code.

        ``flags`` are settings by name, which win over all others: ``app.run(worker_count=4)``.
        """
        from .cli.commands.run import run  # noqa: PLC0415 - imports a web server

        self.registry.reference = self.registry.reference or self._main_reference()
        return run(lambda: self._load(flags), self.registry)

    @asynccontextmanager
    async def running(self, **flags: object) -> AsyncIterator[Holdfast]:
        """Own the store and run jobs on this event loop, as in a web application's lifespan.

        ``flags`` are settings by name, which win over all others. Signals are left alone, and no
        metrics port is opened unless ``metrics_port`` is given.
        Within ``app.testing()`` nothing is started: the test runs the jobs.
        """
        if self._binding.in_test:
            yield self
            return
        from .daemon.daemon import Daemon  # noqa: PLC0415 - imports a web server

        self.registry.reference = self.registry.reference or self._main_reference()

        def read() -> LoadedSettings:
            return self._load({"metrics_port": "off", **flags})

        loaded = read()
        daemon = Daemon(
            self.registry,
            loaded.settings,
            adopt=self.registry.adopt,
            origins=loaded.origins,
            reload=read,
        )
        await daemon.start()
        for warning in loaded.warnings:
            log.emit("daemon.settings_doubtful", warning=warning)
        try:
            yield self
        finally:
            await daemon.stop()

    def testing(self) -> Rehearsal:
        """Return a context manager that runs jobs in virtual time when asked; see ``Rehearsal``."""
        from .testing.app import Rehearsal  # noqa: PLC0415 - for tests

        return Rehearsal(self.registry, self._binding, settings=self.settings)

    def _named(
        self, task: str, payload: Mapping[str, object] | None, job_id: str | None, queue: str | None
    ) -> NewJob:
        job = NewJob(
            task=task,
            payload={} if payload is None else payload,
            id=job_id,
            queue=DEFAULT_QUEUE if queue is None else queue,
            max_attempts=self.settings.max_attempts,
        )
        spec = self.registry.tasks.get(task)
        if spec is None:
            try:
                return replace(job, payload=encode_payload(job.payload))
            except PayloadInvalid as error:
                raise PayloadInvalid("payload", f"{task}: {error.problem}") from None
        budget = spec.retry.max_attempts if spec.retry is not None else None
        return replace(
            job,
            payload=spec.signature.encode_fields({} if payload is None else payload),
            queue=spec.queue if queue is None else spec.queue_for(queue),
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


def _described(kind: type) -> str:
    """Return the docstring of a class; what a dataclass makes of its fields is none."""
    found = inspect.cleandoc(vars(kind).get("__doc__") or "")
    return "" if found.startswith(f"{kind.__name__}(") else found


def _seconds(
    field: str, value: Duration | None, most: float = MAX_TIME_US / MICROSECONDS
) -> float | None:
    return None if value is None else check_seconds(field, seconds_of(field, value), most)


def _check_options(
    check: Callable[..., object] | None, batch: int | None, linger: Duration
) -> float:
    """Check these options of a task; return the seconds for which a batch waits."""
    if check is not None and not callable(check):
        raise InvalidInput("check", f"a {type(check).__name__} is not a function")
    if batch is not None:
        check_size("batch", batch, 1, MAX_BATCH)
    seconds = seconds_of("linger", linger)
    if seconds > MAX_LINGER_SECONDS or (seconds and batch is None):
        problem = f"it is for batch tasks, and at most {MAX_LINGER_SECONDS:g} s"
        raise InvalidInput("linger", problem)
    return seconds


def _spec_of(
    declared: Callable[..., object],
    name: str | None,
    queue: str,
    run_in: str | None,
    fields: dict[str, Any],
) -> TaskSpec:
    """Return the task that a function is declared as."""
    label = str(name or getattr(declared, "__name__", ""))
    if fields["dependency"]:
        check_dependency(fields["dependency"])
        queue = dependency_queue(queue, fields["dependency"])
    kind = ItemSignature if fields["batch"] else Signature
    execution = execution_of(declared, run_in)
    return TaskSpec(label, declared, kind(declared, label), execution, queue, **fields)
