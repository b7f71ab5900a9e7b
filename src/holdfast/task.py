"""Tasks and jobs for users: a function that can be enqueued, and a handle to its job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Generic, ParamSpec, TypeVar

import msgspec

from .binding import Binding
from .engines.contract import Admission, Engine, Receipt
from .model.access import DEFAULT_TENANT
from .model.durations import Duration, seconds_of
from .model.errors import InvalidInput, JobFailed, JobNotFound, ResultTimeout
from .model.job import MICROSECONDS, Job, NewJob, State
from .model.uniform_batch import UniformBatch
from .worker.registry import TaskSpec

P = ParamSpec("P")
R = TypeVar("R")

_POLL_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


class JobHandle(msgspec.Struct, eq=False):
    """A job that was enqueued."""

    id: str
    tenant: str
    _binding: Binding
    existed: bool = False
    """Whether it existed already, with the same unique key."""

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    async def get(self) -> Job:
        """Return the job as it is now, or raise ``JobNotFound``."""
        return await self._binding.call(self._get)

    async def result(self, timeout: Duration | None = None) -> object:  # noqa: ASYNC109
        """Wait until it is finished and return what the task returned.

        Raise ``JobFailed`` when it is dead or cancelled, ``ResultTimeout`` when it takes longer
        than ``timeout``; the job continues then.
        """
        seconds = None if timeout is None else seconds_of("timeout", timeout)
        return await self._binding.call(lambda engine: self._result(engine, seconds))

    def result_sync(self, timeout: Duration | None = None) -> object:
        """Do what ``result`` does, from synchronous code."""
        seconds = None if timeout is None else seconds_of("timeout", timeout)
        return self._binding.call_sync(lambda engine: self._result(engine, seconds))

    async def _get(self, engine: Engine) -> Job:
        job = (await engine.get([self.id], tenant=self.tenant))[0]
        if job is None:
            raise JobNotFound(self.id)
        return job

    async def _result(self, engine: Engine, seconds: float | None) -> object:
        loop = asyncio.get_running_loop()
        give_up = None if seconds is None else loop.time() + seconds
        for tries in range(1 << 62):
            job = await self._get(engine)
            if job.state is State.COMPLETED:
                return None if job.result is None else msgspec.json.decode(job.result)
            if job.state.finished:
                reason = "" if job.failure is None else job.failure.error_reason
                message = "" if job.failure is None else job.failure.message
                raise JobFailed(job.id, job.state.value, reason, message)
            wait_seconds = _POLL_SECONDS[min(tries, len(_POLL_SECONDS) - 1)]
            if give_up is not None:
                left = give_up - loop.time()
                if left <= 0:
                    state = f"still {job.state.value} after {seconds:g} s"
                    raise ResultTimeout(f"job {job.id!r} is {state}; it continues")
                wait_seconds = min(wait_seconds, left)
            await asyncio.sleep(wait_seconds)
        raise ResultTimeout(self.id)


def handles(receipts: list[Receipt], tenant: str, binding: Binding) -> list[JobHandle]:
    """Return handles to these jobs."""
    new = Admission.CREATED
    return [JobHandle(one.id, tenant, binding, one.admission is not new) for one in receipts]


class Task(Generic[P, R]):
    """A function that is also a task. Calling it is a plain call."""

    def __init__(
        self,
        function: Callable[P, R],
        spec: TaskSpec,
        binding: Binding,
        defaults: Callable[[], int],
        extra: Mapping[str, object] | None = None,
        connection: object = None,
    ) -> None:
        self.spec = spec
        self._function = function
        self._binding = binding
        self._default_max_attempts = defaults
        self._extra = dict(extra or {})
        self._connection = connection
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

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Enqueue a call with these arguments; it is durable when this returns."""
        return (await self._send([self._job(args, kwargs)]))[0]

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Do what ``enqueue`` does, from synchronous code."""
        return self._send_sync([self._job(args, kwargs)])[0]

    async def enqueue_many(
        self, calls: Iterable[Sequence[object] | Mapping[str, object]]
    ) -> list[JobHandle]:
        """Enqueue all of these calls, or none, in one commit.

        Each is a tuple of positional or a mapping of named arguments; do not change them before
        this returns. One commit takes up to 8 MiB: use several calls for more.
        """
        jobs = self._jobs(calls)
        if self._binding.runs_on_another_loop():
            jobs.payloads.make_all()  # in this thread, which owns the arguments
        return await self._send(jobs)

    def enqueue_many_sync(
        self, calls: Iterable[Sequence[object] | Mapping[str, object]]
    ) -> list[JobHandle]:
        """Do what ``enqueue_many`` does, from synchronous code."""
        jobs = self._jobs(calls)
        jobs.payloads.make_all()  # in this thread, which owns the arguments
        return self._send_sync(jobs)

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
        depends_on: Sequence[str | JobHandle] | None = None,
        hold: bool | None = None,
        connection: object = None,
    ) -> Task[P, R]:
        """Return the same task with these options for its jobs.

        Jobs of one ``key`` run one after another. A job waits for those in ``depends_on``, and
        with ``hold`` until a person confirms it.

        With ``connection``, your own connection to the database of the store, jobs are enqueued in
        its transaction: they exist once you commit, and never if you roll back. It may be of
        psycopg 3, SQLAlchemy or Django; asynchronous ones are for ``enqueue``, others for
        ``enqueue_sync``.
        """
        options: dict[str, object] = {
            "id": id,
            "queue": queue,
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
        given = {name: value for name, value in options.items() if value is not None}
        return Task(
            self._function,
            self.spec,
            self._binding,
            self._default_max_attempts,
            {**self._extra, **given},
            self._connection if connection is None else connection,
        )

    def _jobs(self, calls: Iterable[Sequence[object] | Mapping[str, object]]) -> UniformBatch:
        many = list(calls)
        return UniformBatch(self._template(), self._payloads(many), len(many))

    def _payloads(
        self, calls: Iterable[Sequence[object] | Mapping[str, object]]
    ) -> Iterator[bytes]:
        encode = self.spec.signature.encode
        for call in calls:
            if type(call) is tuple:
                yield encode(call, {})
            elif isinstance(call, Mapping):
                yield encode((), dict(call))
            elif isinstance(call, str | bytes) or not isinstance(call, Sequence):
                raise InvalidInput(
                    "calls", f"{call!r} is not a tuple of arguments: write ({call!r},)"
                )
            else:
                yield encode(tuple(call), {})

    def _job(self, args: tuple[object, ...], kwargs: dict[str, object]) -> NewJob:
        return self._template(self.spec.signature.encode(args, kwargs))

    def _template(self, payload: bytes = b"{}") -> NewJob:
        """Return a job of this task with this payload; all other fields are the same for each."""
        spec = self.spec
        policy = spec.retry
        fields: dict[str, object] = {
            "queue": spec.queue,
            "priority": spec.priority,
            "max_attempts": (policy and policy.max_attempts) or self._default_max_attempts(),
            "estimated_seconds": spec.estimated_seconds,
            "max_processing_seconds": spec.max_processing_seconds,
            **self._extra,
        }
        new: Callable[..., NewJob] = NewJob
        return new(task=spec.name, payload=payload, **fields)

    async def _send(self, jobs: Sequence[NewJob]) -> list[JobHandle]:
        if self._connection is not None:
            return self._handles(await self._binding.enqueue_in_transaction(self._connection, jobs))
        return self._handles(await self._binding.call(lambda engine: engine.enqueue(jobs)))

    def _send_sync(self, jobs: Sequence[NewJob]) -> list[JobHandle]:
        if self._connection is not None:
            return self._handles(self._binding.enqueue_in_transaction_sync(self._connection, jobs))
        return self._handles(self._binding.call_sync(lambda engine: engine.enqueue(jobs)))

    def _handles(self, receipts: list[Receipt]) -> list[JobHandle]:
        return handles(receipts, self._tenant, self._binding)

    @property
    def _tenant(self) -> str:
        tenant = self._extra.get("tenant", DEFAULT_TENANT)
        return tenant if isinstance(tenant, str) else DEFAULT_TENANT


def _ids(jobs: Sequence[str | JobHandle]) -> tuple[str, ...]:
    if isinstance(jobs, str | JobHandle):
        raise InvalidInput("depends_on", "give a list of jobs, or of their ids")
    return tuple(job.id if isinstance(job, JobHandle) else job for job in jobs)


def _microseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise InvalidInput("run_at", f"{moment} has no time zone: give one, such as UTC")
    return int(moment.astimezone(UTC).timestamp() * MICROSECONDS)
