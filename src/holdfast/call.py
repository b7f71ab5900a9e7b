"""Calls of tasks that are enqueued together, in one commit, with dependencies among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar, cast

import msgspec
from msgspec.structs import replace

from .binding import Binding
from .engines.clock import SystemClock
from .engines.contract import OnDuplicate, Receipt
from .engines.entropy import random_bytes
from .job_handle import JobHandle, R_co, handle_of
from .model.errors import InvalidInput
from .model.ids import RANDOM_BYTES, uuid7s
from .model.job import NewJob
from .worker.registry import TaskSpec

T = TypeVar("T")


class EnqueueOptions(msgspec.Struct, frozen=True, eq=False):
    """How jobs of a task are enqueued, besides the fields of the new jobs."""

    after: tuple[Call[object], ...] = ()
    """Calls of the same commit that they depend on."""
    on_duplicate: OnDuplicate | None = None
    connection: object = None

    def changed(
        self,
        depends_on: Sequence[object] | None,
        on_duplicate: OnDuplicate | None,
        connection: object,
    ) -> EnqueueOptions:
        """Return these options with those that are given and not None."""
        after = self.after
        if depends_on is not None:
            after = tuple(one for one in depends_on if isinstance(one, Call))
        connection = self.connection if connection is None else connection
        return EnqueueOptions(after, on_duplicate or self.on_duplicate, connection)


class Call(msgspec.Struct, Generic[R_co], frozen=True, eq=False):
    """A task with arguments that is not enqueued yet; ``R`` is the type that the task returns.

    ``task.call(...)`` makes one, and ``task.options(...).call(...)`` one with options of its own.
    Enqueue it with ``app.enqueue_all`` or ``task.enqueue_many``; name it in ``depends_on`` of
    another call to let that one wait for it.
    """

    _spec: TaskSpec
    _job: NewJob
    _options: EnqueueOptions
    _made_by: object
    _binding: Binding

    def __repr__(self) -> str:
        return f"<call of {self._spec.name}>"


def payload_of(call: Call[object], task: object) -> bytes:
    """Return the arguments of a call, encoded; raise unless exactly this task has made it."""
    if call._made_by is not task:  # noqa: SLF001 - of this module
        raise InvalidInput(
            "calls", f"{call!r} is of another task or has options of its own: use app.enqueue_all"
        )
    payload = call._job.payload  # noqa: SLF001
    return payload if isinstance(payload, bytes) else b""


class CallBatch(Generic[T]):
    """Calls that become jobs in one commit."""

    def __init__(
        self,
        calls: Iterable[Call[T]],
        binding: Binding,
        on_duplicate: OnDuplicate | None,
        connection: object,
    ) -> None:
        """Give an id to each job that another one depends on; raise ``InvalidInput``."""
        self._calls = list(calls)
        self._binding = binding
        for call in self._calls:
            if not isinstance(call, Call):
                raise InvalidInput("calls", f"{call!r} is not a call: write task.call(...)")
            if call._binding is not binding:  # noqa: SLF001 - of this module
                raise InvalidInput("calls", f"{call!r} is of another application")
        self.jobs = _new_jobs(self._calls)
        if on_duplicate is None:
            on_duplicate = _only_one("on_duplicate", _on_duplicates(self._calls))
        self.on_duplicate: OnDuplicate = on_duplicate or "refuse"
        if connection is None:
            given = [call._options.connection for call in self._calls]  # noqa: SLF001
            connection = _only_one("connection", [one for one in given if one is not None])
        self.connection = connection

    def handles(self, receipts: Sequence[Receipt]) -> list[JobHandle[T]]:
        """Return the handles of the jobs, in the order of the calls."""
        return [
            handle_of(receipt, job.tenant, self._binding, _decoder(call))
            for receipt, job, call in zip(receipts, self.jobs, self._calls, strict=True)
        ]


def _decoder(call: Call[T]) -> Callable[[bytes], T]:
    """Return what decodes the result: as the type that the task declares, which is ``T``."""
    return cast("Callable[[bytes], T]", call._spec.signature.result)  # noqa: SLF001


def _new_jobs(calls: Sequence[Call[object]]) -> list[NewJob]:
    ids: dict[Call[object], str | None] = {}
    for call in calls:
        if call in ids:
            raise InvalidInput("calls", f"{call!r} is there twice: make two calls for two jobs")
        ids[call] = call._job.id  # noqa: SLF001 - of this module
    after = {call: call._options.after for call in calls}  # noqa: SLF001
    for needed in {one: None for others in after.values() for one in others}:
        if needed not in ids:
            raise InvalidInput(
                "depends_on", f"{needed!r} is not among these calls: add it, or depend on its job"
            )
        [fresh] = uuid7s(SystemClock().now_us(), random_bytes(RANDOM_BYTES))
        ids[needed] = ids[needed] or fresh
    jobs = []
    for call in calls:
        job = call._job  # noqa: SLF001
        needs = (*job.depends_on, *(ids[one] for one in after[call]))
        jobs.append(replace(job, id=ids[call], depends_on=needs) if ids[call] or needs else job)
    return jobs


def _on_duplicates(calls: Sequence[Call[object]]) -> list[OnDuplicate]:
    """Return what each call with an id of its own wants; for others it has no meaning."""
    named = [call for call in calls if call._job.id is not None]  # noqa: SLF001
    return [call._options.on_duplicate or "refuse" for call in named]  # noqa: SLF001


def _only_one(field: str, found: Sequence[T]) -> T | None:
    """Return the option that these calls have, or raise if they differ: a commit has one."""
    if any(one is not found[0] and one != found[0] for one in found):
        raise InvalidInput(field, f"the calls have different ones: give {field} to enqueue_all")
    return found[0] if found else None
