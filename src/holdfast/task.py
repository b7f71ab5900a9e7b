"""Tasks for users: a function that can be enqueued, and calls of it that are enqueued together."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, cast, overload

from .binding import Binding
from .call import Call, EnqueueOptions, payload_of
from .engines.contract import OnDuplicate, Receipt
from .job_handle import JobHandle, handle_of
from .model.durations import Duration, seconds_of
from .model.errors import InvalidInput
from .model.job import MICROSECONDS, NewJob
from .model.uniform_batch import UniformBatch
from .worker.registry import TaskSpec

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 - an item
C = TypeVar("C")

Arguments: TypeAlias = tuple[object, ...] | list[Any] | Mapping[str, object]
"""The arguments of one call: positional ones as a tuple or list, or named ones as a mapping."""


class Task(Generic[P, R]):
    """A function that is also a task: ``@app.task`` makes it. Calling it is a plain call."""

    spec: TaskSpec
    """The task as it was declared."""

    def __init__(
        self,
        function: Callable[P, R],
        spec: TaskSpec,
        binding: Binding,
        defaults: Callable[[], int],
        fields: Mapping[str, object] | None = None,
        options: EnqueueOptions | None = None,
    ) -> None:
        self.spec = spec
        self._function = function
        self._binding = binding
        self._default_max_attempts = defaults
        self._fields = dict(fields or {})
        self._options = options or EnqueueOptions()
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", spec.name)
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<task {self.spec.name}>"

    @property
    def name(self) -> str:
        """The task's name, by which workers find it."""
        return self.spec.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly."""
        return self._function(*args, **kwargs)

    @overload
    async def enqueue(
        self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[T]: ...

    @overload
    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]: ...

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[object]:
        """Enqueue a call with these arguments; it is durable when this returns.

        Raise ``InvalidInput`` if the arguments or options are wrong, ``DuplicateId`` if the job's
        id exists, ``StorageFull``, or ``Unavailable`` if the store does not answer.
        """
        return (await self._send([self._job(args, kwargs)]))[0]

    @overload
    def enqueue_sync(
        self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[T]: ...

    @overload
    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]: ...

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[object]:
        """Do what ``enqueue`` does, from synchronous code."""
        return self._send_sync([self._job(args, kwargs)])[0]

    @overload
    async def enqueue_many(
        self: Task[P, Coroutine[Any, Any, T]], calls: Iterable[Call[T] | Arguments]
    ) -> list[JobHandle[T]]: ...

    @overload
    async def enqueue_many(self, calls: Iterable[Call[R] | Arguments]) -> list[JobHandle[R]]: ...

    async def enqueue_many(
        self, calls: Iterable[Call[Any] | Arguments]
    ) -> Sequence[JobHandle[object]]:
        """Enqueue all of these ``calls``, or none, in one commit.

        Each is made by ``call``, whose arguments a type checker sees; or it is a tuple of
        positional or a mapping of named arguments. Do not change them before this returns. One
        commit takes up to 8 MiB: use several for more.
        """
        jobs = self._jobs(calls)
        if self._binding.runs_on_another_loop():
            jobs.payloads.make_all()  # in this thread, which owns the arguments
        return await self._send(jobs)

    @overload
    def enqueue_many_sync(
        self: Task[P, Coroutine[Any, Any, T]], calls: Iterable[Call[T] | Arguments]
    ) -> list[JobHandle[T]]: ...

    @overload
    def enqueue_many_sync(self, calls: Iterable[Call[R] | Arguments]) -> list[JobHandle[R]]: ...

    def enqueue_many_sync(
        self, calls: Iterable[Call[Any] | Arguments]
    ) -> Sequence[JobHandle[object]]:
        """Do what ``enqueue_many`` does, from synchronous code."""
        jobs = self._jobs(calls)
        jobs.payloads.make_all()  # in this thread, which owns the arguments
        return self._send_sync(jobs)

    @overload
    def call(
        self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Call[T]: ...

    @overload
    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[Any]:
        """Return a call with these arguments, for ``enqueue_many`` and ``app.enqueue_all``.

        Nothing is enqueued yet. The arguments are checked and encoded now.
        """
        job = self._new_job(self.spec.signature.encode(args, kwargs))
        return Call(self.spec, job, self._options, self, self._binding)

    def options(
        self,
        *,
        id: str | None = None,  # noqa: A002 - it is the job's id
        queue: str | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        expires: Duration | None = None,
        unique: str | None = None,
        max_attempts: int | None = None,
        estimated: Duration | None = None,
        tenant: str | None = None,
        scope: str | None = None,
        key: str | None = None,
        depends_on: Sequence[str | JobHandle[object] | Call[object]] | None = None,
        hold: bool | None = None,
        on_duplicate: OnDuplicate | None = None,
        connection: object = None,
    ) -> Task[P, R]:
        """Return the same task with these options for its jobs.

        A second job with an ``id`` is refused (``DuplicateId``) as long as the first is remembered,
        or with ``on_duplicate="skip"`` left out: the handle's ``existed`` is true. ``unique``
        allows one unfinished job of this name in a queue: enqueueing a second returns the first.

        A job is due after ``delay`` or at ``run_at``, and dies unless it starts within ``expires``.
        It goes to ``queue``, where higher ``priority`` comes first. ``max_attempts`` counts all
        runs. ``estimated`` is how long the first lease lasts.

        Jobs of one ``key`` run one after another. A job waits for those in ``depends_on``: ids,
        handles, or calls that are enqueued with it by ``app.enqueue_all``; and with ``hold`` until
        a person confirms it. ``tenant`` owns the job, ``scope`` is a path inside the tenant.

        With ``connection``, your own connection to the database of the store, jobs are enqueued in
        its transaction: they exist once you commit, and never if you roll back. It may be of
        psycopg 3, SQLAlchemy or Django; asynchronous ones are for ``enqueue``, others for
        ``enqueue_sync``.
        """
        fields: dict[str, object] = {
            "id": id,
            "queue": None if queue is None else self.spec.queue_for(queue),
            "priority": priority,
            "delay_seconds": None if delay is None else seconds_of("delay", delay),
            "run_at_us": None if run_at is None else _microseconds(run_at),
            "expires_seconds": None if expires is None else seconds_of("expires", expires),
            "unique": unique,
            "max_attempts": max_attempts,
            "estimated_seconds": None if estimated is None else seconds_of("estimated", estimated),
            "tenant": tenant,
            "scope": scope,
            "key": key,
            "depends_on": None if depends_on is None else _ids(depends_on),
            "hold": hold,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        options = self._options.changed(depends_on, on_duplicate, connection)
        fields = {**self._fields, **given}
        defaults = self._default_max_attempts
        return type(self)(self._function, self.spec, self._binding, defaults, fields, options)

    def _jobs(self, calls: Iterable[Call[Any] | Arguments]) -> UniformBatch:
        many = list(calls)
        return UniformBatch(self._template(), self._payloads(many), len(many))

    def _payloads(self, calls: Iterable[Call[Any] | Arguments]) -> Iterator[bytes]:
        encode = self.spec.signature.encode
        for call in calls:
            given: object = call  # a type checker may not have seen it
            if type(call) is tuple:
                yield encode(call, {})
            elif isinstance(given, Call):
                yield payload_of(given, self)
            elif isinstance(given, Mapping):
                yield encode((), dict(given))
            elif isinstance(given, Sequence) and not isinstance(given, str | bytes):
                yield encode(tuple(given), {})
            else:
                problem = f"{given!r} is not a tuple of arguments: write ({given!r},)"
                raise InvalidInput("calls", problem)

    def _job(self, args: tuple[object, ...], kwargs: dict[str, object]) -> NewJob:
        return self._template(self.spec.signature.encode(args, kwargs))

    def _template(self, payload: bytes = b"{}") -> NewJob:
        """Return a job of this task with this payload; all other fields are the same for each."""
        if self._options.after:
            raise InvalidInput(
                "depends_on",
                f"{self._options.after[0]!r} is not enqueued: pass both to app.enqueue_all, or "
                "depend on the handle of the first",
            )
        return self._new_job(payload)

    def _new_job(self, payload: bytes) -> NewJob:
        spec = self.spec
        policy = spec.retry
        fields: dict[str, object] = {
            "queue": spec.queue,
            "priority": spec.priority,
            "max_attempts": (policy and policy.max_attempts) or self._default_max_attempts(),
            "estimated_seconds": spec.estimated_seconds,
            "max_processing_seconds": spec.max_processing_seconds,
            **self._fields,
        }
        new: Callable[..., NewJob] = NewJob
        return new(task=spec.name, payload=payload, **fields)

    async def _send(self, jobs: Sequence[NewJob]) -> list[JobHandle[Any]]:
        options = self._options
        receipts = await self._binding.enqueue(
            jobs, options.on_duplicate or "refuse", options.connection
        )
        return self._handles(jobs, receipts)

    def _send_sync(self, jobs: Sequence[NewJob]) -> list[JobHandle[Any]]:
        options = self._options
        receipts = self._binding.enqueue_sync(
            jobs, options.on_duplicate or "refuse", options.connection
        )
        return self._handles(jobs, receipts)

    def _handles(self, jobs: Sequence[NewJob], receipts: list[Receipt]) -> list[JobHandle[Any]]:
        tenant = jobs.like.tenant if isinstance(jobs, UniformBatch) else jobs[0].tenant
        decode = self.spec.signature.result
        return [handle_of(one, tenant, self._binding, decode) for one in receipts]


class BatchTask(Task[[I], R], Generic[I, R, C]):
    """A task whose function gets many items at once: ``@app.task(batch=...)`` makes it.

    Each item is a job of its own: it is enqueued, retried, cancelled and looked at alone.
    """

    def __call__(self, items: Sequence[I]) -> C:  # type: ignore[override]
        """Call the function directly, with a list of items."""
        call = cast("Callable[[Sequence[I]], C]", self._function)
        return call(items)


def _ids(jobs: Sequence[str | JobHandle[object] | Call[object]]) -> tuple[str, ...]:
    if isinstance(jobs, str | JobHandle | Call):
        raise InvalidInput("depends_on", "give a list of jobs, of their ids, or of calls")
    return tuple(
        job.id if isinstance(job, JobHandle) else job for job in jobs if not isinstance(job, Call)
    )


def _microseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise InvalidInput("run_at", f"{moment} has no time zone: give one, such as UTC")
    return int(moment.astimezone(UTC).timestamp() * MICROSECONDS)
