"""The only door for people: what the command line, HTTP and the console do goes through here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from holdfast.engines.base import Admission, Counts, Engine, OnDuplicate, Receipt
from holdfast.model.access import DEFAULT_TENANT
from holdfast.model.durations import Duration, seconds_of
from holdfast.model.errors import InvalidInput, JobNotFound, PayloadInvalid, UnknownTask
from holdfast.model.job import (
    MICROSECONDS,
    Job,
    NewJob,
    State,
    admit,
    check_id,
    encode_payload,
)

from .builtin import BY_TYPE, by_type
from .definition import Definition
from .worker import Running, Worker


class JobInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job as a person writes it in a file. Status and attempts there are ignored."""

    payload: dict[str, object] = {}
    id: str | None = None
    task: str | None = None
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    delay: float | int | str | None = None
    run_at: datetime | None = None
    expires: float | int | str | None = None
    unique: str | None = None
    key: str | None = None
    depends_on: tuple[str, ...] = ()
    hold: bool = False
    tenant: str = DEFAULT_TENANT
    scope: str = ""
    status: object = None
    state: object = None
    attempt: object = None
    attempts: object = None


class QueueStatus(msgspec.Struct, frozen=True):
    """One queue in numbers."""

    queue: str
    counts: Counts


class Status(msgspec.Struct, frozen=True):
    """Everything in numbers."""

    pending: int
    in_flight: int
    completed: int
    dead: int
    blocked: int
    cancelled: int
    archived: int
    queues: list[QueueStatus]
    running: list[Running] = []
    slots: Mapping[str, int] = {}


class JobView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job as a person sees it: times as dates, the token as text, nothing that is not set."""

    id: str
    status: str
    task: str
    queue: str
    payload: msgspec.Raw
    attempt: int
    max_attempts: int
    priority: int
    created_at: datetime
    run_at: datetime
    version: int
    tenant: str = DEFAULT_TENANT
    scope: str = ""
    losses: int = 0
    token: str = ""
    worker: str = ""
    claimed_at: datetime | None = None
    lease_until: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    unique: str | None = None
    key: str | None = None
    depends_on: tuple[str, ...] = ()
    waiting_for: tuple[str, ...] = ()
    hold: bool = False
    replay_count: int = 0
    last_replayed_at: datetime | None = None
    last_replayed_by: str = ""
    last_replayed_reason: str = ""
    cancel_reason: str = ""
    error_reason: str = ""
    failure_class: str = ""
    last_error: str = ""
    traceback: str = ""
    result: Any = None
    running: Running | None = None

    @classmethod
    def of(cls, job: Job, running: Running | None = None) -> JobView:
        """Return the job for people."""
        failure, replays = job.failure, job.replays
        return cls(
            id=job.id,
            status=job.state.value,
            task=job.task,
            queue=job.queue,
            payload=msgspec.Raw(job.payload or b"null"),
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            priority=job.priority,
            created_at=_date(job.created_at_us),
            run_at=_date(job.run_at_us),
            version=job.version,
            tenant=job.tenant,
            scope=job.scope,
            losses=job.losses,
            token=str(job.token) if job.token else "",
            worker=job.worker,
            claimed_at=_date(job.claimed_at_us) if job.claimed_at_us else None,
            lease_until=_date(job.lease_until_us) if job.state is State.IN_FLIGHT else None,
            finished_at=_date(job.finished_at_us) if job.finished_at_us else None,
            expires_at=_date(job.expires_at_us) if job.expires_at_us else None,
            unique=job.unique,
            key=job.ties.key,
            depends_on=job.ties.depends_on,
            waiting_for=job.ties.waiting_for,
            hold=job.ties.hold,
            replay_count=0 if replays is None else replays.count,
            last_replayed_at=None if replays is None else _date(replays.last_at_us),
            last_replayed_by="" if replays is None else replays.last_by,
            last_replayed_reason="" if replays is None else replays.last_why,
            cancel_reason=job.cancel_reason,
            error_reason="" if failure is None else failure.error_reason,
            failure_class="" if failure is None else failure.failure_class.value,
            last_error="" if failure is None else failure.message,
            traceback="" if failure is None else failure.traceback,
            result=None if job.result is None else msgspec.Raw(job.result),
            running=running,
        )


class Operations:
    """What may be done, over an engine, with or without a worker beside it."""

    def __init__(
        self,
        engine: Engine,
        definition: Definition | None = None,
        worker: Worker | None = None,
        *,
        default_max_attempts: int = 3,
    ) -> None:
        """Take what is there: without a definition no task is known here."""
        self._engine = engine
        self._definition = definition
        self._worker = worker
        self.default_max_attempts = default_max_attempts

    async def enqueue(
        self, inputs: Sequence[JobInput], on_duplicate: OnDuplicate = "refuse"
    ) -> list[Receipt]:
        """Take all of these, or none; a wrong one is named by its place."""
        jobs = new_jobs(inputs, self._definition, self.default_max_attempts)
        return await self._engine.enqueue(jobs, on_duplicate=on_duplicate)

    async def status(self) -> Status:
        """Count everything."""
        counts = await self._engine.counts()
        running = self._worker.running() if self._worker is not None else []
        slots = self._worker.slots if self._worker is not None else {}
        return status_of(counts, running, slots)

    async def show(self, job_id: str, tenant: str = DEFAULT_TENANT) -> JobView:
        """Return one job, or raise ``JobNotFound``."""
        job = (await self._engine.get([job_id], tenant=tenant))[0]
        if job is None:
            raise JobNotFound(job_id)
        running = self._worker.running() if self._worker is not None else []
        return JobView.of(job, next((run for run in running if run.job_id == job_id), None))

    def resize(self, slots: int, queue: str = "") -> None:
        """Change how many jobs the worker runs at once."""
        if self._worker is None:
            raise InvalidInput("workers", "no worker runs here")
        self._worker.resize(slots, queue)


def read_inputs(text: bytes) -> list[JobInput]:
    """Return the jobs of a JSON array, of one object, or of NDJSON; name the line that is wrong."""
    text = text.removeprefix(b"\xef\xbb\xbf")  # what some editors begin a file with
    stripped = text.strip()
    if not stripped:
        return []
    if stripped.startswith(b"["):
        return _decoded(stripped, "the file", list[JobInput])
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if len(lines) == 1 or _is_one_document(stripped):
        return [_decoded(stripped, "the file", JobInput)]
    return [_decoded(line, f"line {number}", JobInput) for number, line in lines]


def new_jobs(
    inputs: Sequence[JobInput], definition: Definition | None, default_max_attempts: int
) -> list[NewJob]:
    """Return what these ask for; raise ``InvalidInput`` naming the place of a wrong one.

    Without a definition no task is known, and the worker decides.
    """
    jobs: list[NewJob] = []
    for place, item in enumerate(inputs, 1):
        try:
            job = _new_job(item, definition, default_max_attempts)
            # The engine checks again; only here is it known which job is wrong.
            admit(job, "a good one" if job.id is None else check_id(job.id), 0, 0)
        except InvalidInput as error:
            field = _FIELDS.get(error.field, error.field)
            raise InvalidInput(f"job {place}: {field}", error.problem) from None
        except UnknownTask as error:
            raise InvalidInput(f"job {place}: task", str(error)) from None
        jobs.append(job)
    return jobs


def status_of(
    counts: Mapping[str, Counts],
    running: Sequence[Running] = (),
    slots: Mapping[str, int] | None = None,
) -> Status:
    """Add up the counts of all queues."""
    total = {
        field: sum(getattr(count, field) for count in counts.values())
        for field in Counts.__struct_fields__
    }
    queues = [QueueStatus(queue, counts[queue]) for queue in sorted(counts)]
    return Status(**total, queues=queues, running=list(running), slots=slots or {})


def created(receipts: Sequence[Receipt]) -> int:
    """How many of these are new jobs."""
    return sum(receipt.admission is Admission.CREATED for receipt in receipts)


T = TypeVar("T")

_FIELDS = {"run_at_us": "run_at", "delay_seconds": "delay", "expires_seconds": "expires"}
"""How a person calls a field of a job."""


def _new_job(item: JobInput, definition: Definition | None, default_max_attempts: int) -> NewJob:
    payload = encode_payload(item.payload)
    declared: dict[str, object] = {"task": BY_TYPE}
    if definition is not None:
        if item.task is None:
            spec, payload = by_type(definition, payload)
        else:
            spec = definition.task(item.task)
        spec.signature.check(payload)
        declared = {
            "task": spec.name,
            "queue": spec.queue,
            "priority": spec.priority,
            "max_attempts": None if spec.retry is None else spec.retry.max_attempts,
            "estimated_seconds": spec.estimated_seconds,
            "max_processing_seconds": spec.max_processing_seconds,
        }
    if item.run_at is not None and item.delay is not None:
        raise InvalidInput("delay", "give delay or run_at, not both")
    asked: dict[str, object] = {
        "task": item.task,
        "queue": item.queue,
        "priority": item.priority,
        "max_attempts": item.max_attempts,
        "run_at_us": None if item.run_at is None else _microseconds(item.run_at),
        "delay_seconds": _seconds("delay", item.delay),
        "expires_seconds": _seconds("expires", item.expires),
    }
    fields: dict[str, object] = {"max_attempts": default_max_attempts}
    for given in (declared, asked):
        fields |= {name: value for name, value in given.items() if value is not None}
    make: Callable[..., NewJob] = NewJob
    return make(
        payload=payload,
        id=item.id,
        tenant=item.tenant,
        scope=item.scope,
        unique=item.unique,
        key=item.key,
        depends_on=item.depends_on,
        hold=item.hold,
        **fields,
    )


def _is_one_document(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def _decoded(text: bytes, where: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PayloadInvalid(where, str(error)) from None


def _seconds(field: str, value: Duration | None) -> float | None:
    return None if value is None else seconds_of(field, value)


def _date(moment_us: int) -> datetime:
    return datetime.fromtimestamp(moment_us / MICROSECONDS, UTC)


def _microseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * MICROSECONDS)
