"""Jobs as people write them in a file, and the new jobs that they request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.model.access import DEFAULT_TENANT
from holdfast.model.durations import Duration, seconds_of
from holdfast.model.errors import InvalidInput, PayloadInvalid, UnknownTask
from holdfast.model.job import MICROSECONDS, NewJob, admit, check_id, encode_payload

if TYPE_CHECKING:
    from holdfast.worker.registry import Registry

T = TypeVar("T")


class JobInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job as a person writes it in a file. Its status and attempts are ignored."""

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


def read_inputs(text: bytes) -> list[JobInput]:
    """Return the jobs of a JSON array, one object, or NDJSON; an error names the wrong line."""
    text = text.removeprefix(b"\xef\xbb\xbf")  # the byte order mark
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
    inputs: Sequence[JobInput], registry: Registry | None, default_max_attempts: int
) -> list[NewJob]:
    """Return the requested jobs; raise ``InvalidInput`` naming the place of a wrong one.

    Without a registry no task is known, and the worker decides.
    """
    jobs: list[NewJob] = []
    for place, item in enumerate(inputs, 1):
        try:
            job = _new_job(item, registry, default_max_attempts)
            # The engine checks again, but only here the place of the job is known.
            admit(job, "a good one" if job.id is None else check_id(job.id), 0, 0)
        except InvalidInput as error:
            field = _FIELDS.get(error.field, error.field)
            raise InvalidInput(f"job {place}: {field}", error.problem) from None
        except UnknownTask as error:
            raise InvalidInput(f"job {place}: task", str(error)) from None
        jobs.append(job)
    return jobs


def check_ids_differ(inputs: Sequence[JobInput]) -> None:
    """Raise ``InvalidInput`` naming both places if two of these jobs have the same id."""
    places: dict[tuple[str, str], int] = {}
    for place, item in enumerate(inputs, 1):
        if item.id is None:
            continue
        first = places.setdefault((item.tenant, item.id), place)
        if first != place:
            raise InvalidInput(
                f"job {place}: id",
                f"{item.id!r} is also the id of job {first} here: give each job an id of its own, "
                "or enqueue the first of each with --skip-duplicates",
            )


_FIELDS = {"run_at_us": "run_at", "delay_seconds": "delay", "expires_seconds": "expires"}
"""The names of fields in a file."""


def _new_job(item: JobInput, registry: Registry | None, default_max_attempts: int) -> NewJob:
    from holdfast.worker.builtin_tasks import BY_TYPE, by_type  # noqa: PLC0415 - imports signatures

    payload = encode_payload(item.payload)
    declared: dict[str, object] = {"task": BY_TYPE}
    if registry is not None:
        if item.task is None:
            spec, payload = by_type(registry, payload)
        else:
            spec = registry.task(item.task)
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


def _microseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * MICROSECONDS)
