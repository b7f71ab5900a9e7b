"""A handle to a job that was enqueued: its state, and its result in the task's own type."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from .binding import Binding
from .engines.contract import Admission, Engine, Receipt
from .model.durations import Duration, seconds_of
from .model.errors import JobFailed, JobNotFound, NoResult, ResultTimeout
from .model.job import Job, State
from .model.outcome import why_not_kept

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # A plain ``JobHandle`` in an annotation means ``JobHandle[object]``.
    R_co = TypeVarWithDefault("R_co", covariant=True, default=object)
else:
    R_co = TypeVar("R_co", covariant=True)

_POLL_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


class JobHandle(msgspec.Struct, Generic[R_co], eq=False):
    """A job that was enqueued; ``R`` is the type that its task returns.

    A handle from ``app.job`` or ``app.enqueue`` is a ``JobHandle[object]``: it does not know the
    task, and its result is the JSON value as it is stored.
    """

    id: str
    """The job's id, unique within its tenant."""
    tenant: str
    """The tenant that owns the job."""
    _binding: Binding
    existed: bool = False
    """Whether the job existed already, with the same unique key or, if skipped, the same id."""
    _decode: Callable[[bytes], R_co] = msgspec.json.decode

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    async def get(self) -> Job:
        """Return the job as it is now, or raise ``JobNotFound``."""
        return await self._binding.call(self._get)

    async def result(self, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109
        """Wait until the job is finished and return what its task returned.

        The result has the type that the task declares, if JSON can carry it; otherwise it is the
        JSON value. Raise ``JobFailed`` when the job is dead or cancelled, ``ResultTimeout`` when
        it takes longer than ``timeout``; the job continues then. Raise ``NoResult`` when the job
        is completed and its result could not be kept, or is not of the declared type.
        """
        seconds = None if timeout is None else seconds_of("timeout", timeout)
        return await self._binding.call(lambda engine: self._result(engine, seconds), waits=True)

    def result_sync(self, timeout: Duration | None = None) -> R_co:
        """Do what ``result`` does, from synchronous code."""
        seconds = None if timeout is None else seconds_of("timeout", timeout)
        return self._binding.call_sync(lambda engine: self._result(engine, seconds), waits=True)

    async def _get(self, engine: Engine) -> Job:
        job = (await engine.get([self.id], tenant=self.tenant))[0]
        if job is None:
            raise JobNotFound(self.id)
        return job

    async def _result(self, engine: Engine, seconds: float | None) -> R_co:
        loop = asyncio.get_running_loop()
        give_up = None if seconds is None else loop.time() + seconds
        for tries in range(1 << 62):
            job = await self._get(engine)
            if job.state is State.COMPLETED:
                return self._value(job)
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

    def _value(self, job: Job) -> R_co:
        if job.result is None:
            return None  # type: ignore[return-value]  # what the task returned
        if (why := why_not_kept(job.result)) is not None:
            raise NoResult(job.id, f"its result was not kept: {why}")
        try:
            return self._decode(job.result)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise NoResult(
                job.id,
                f"its result is not of the type that its task declares ({error}); "
                f"app.job({job.id!r}).result() returns it as it is stored",
            ) from None


def handle_of(
    receipt: Receipt,
    tenant: str,
    binding: Binding,
    decode: Callable[[bytes], R_co] = msgspec.json.decode,
) -> JobHandle[R_co]:
    """Return a handle to this job, whose result is decoded by ``decode``."""
    existed = receipt.admission is not Admission.CREATED
    return JobHandle(receipt.id, tenant, binding, existed, decode)
