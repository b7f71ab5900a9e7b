"""A job: a unit of work, as requested (``NewJob``) and as stored (``Job``).

Times are integer microseconds since the epoch, by the engine's clock. A ``Job`` never changes:
each transition makes a new one, so it can be shared without a copy.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import lru_cache
from sys import intern
from typing import Annotated, Protocol, runtime_checkable

import msgspec

from .access import DEFAULT_TENANT
from .errors import InvalidInput, PayloadInvalid, TooLarge
from .failure import Failure
from .json_values import changed_by_json
from .retry import DEFAULT_MAX_ATTEMPTS

MICROSECONDS = 1_000_000
DEFAULT_QUEUE = "default"
DEFAULT_TASK_TIMEOUT_SECONDS = 600.0
CAP_MARGIN_SECONDS = 60.0
"""How long a job may stay claimed beyond the timeout of its task, if no cap is set."""
DEFAULT_CAP_SECONDS = DEFAULT_TASK_TIMEOUT_SECONDS + CAP_MARGIN_SECONDS
MAX_PAYLOAD_BYTES = 256 * 1024
MAX_RESULT_BYTES = 256 * 1024
MAX_LEASE_SECONDS = 3_600.0
NAME_LIMIT = 255
SCOPE_LIMIT = 1_000
MAX_DEPENDENCIES = 1_000
PRIORITIES = (-32_768, 32_767)
MAX_ATTEMPTS = 1_000_000
MAX_TIME_US = 2**62


Whole = Annotated[int, msgspec.Meta(ge=0, le=MAX_TIME_US)]
"""A count, a sequence number, a token or a time, as it may be stored: room to add to it."""


class State(enum.StrEnum):
    """The state of a job."""

    BLOCKED = "blocked"
    """It waits for other jobs, or for a person."""
    PENDING = "pending"
    """It waits until it is due and a worker is free."""
    IN_FLIGHT = "in_flight"
    """A worker runs it under a lease."""
    COMPLETED = "completed"
    """It is done, and never runs again."""
    CANCELLED = "cancelled"
    """It was ended by a person, by its task, or because a job that it waited for was."""
    DEAD = "dead"
    """It failed for good, and waits for a person: a dead letter."""
    ARCHIVED = "archived"
    """It is a dead letter that a person has set aside."""

    @property
    def finished(self) -> bool:
        """Whether the job is finished, unless a person replays it."""
        return self not in UNFINISHED


UNFINISHED = frozenset({State.BLOCKED, State.PENDING, State.IN_FLIGHT})
FORGETTABLE = frozenset({State.COMPLETED, State.CANCELLED})
"""The states in which a job is dropped after a time; dead letters stay."""


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a caller requests.

    ``id`` is unique within its tenant; None asks for a UUIDv7. A job becomes due at ``run_at_us``
    or ``delay_seconds`` from now, and dies unclaimed at ``expires_at_us`` or after
    ``expires_seconds``. One unfinished job per (tenant, queue, ``unique``).

    Jobs of one (tenant, queue, ``key``) run one after another, in the order of their enqueueing.
    A job waits until every job in ``depends_on``, of its tenant, is completed, and with ``hold``
    until a person confirms it.
    """

    task: str
    payload: Mapping[str, object] | bytes = b"{}"
    id: str | None = None
    tenant: str = DEFAULT_TENANT
    scope: str = ""
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    run_at_us: int | None = None
    delay_seconds: float | None = None
    expires_at_us: int | None = None
    expires_seconds: float | None = None
    unique: str | None = None
    estimated_seconds: float | None = None
    max_processing_seconds: float | None = None
    key: str | None = None
    depends_on: tuple[str, ...] = ()
    hold: bool = False


class Ties(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a job waits for: others of its key, its dependencies, a person's confirmation.

    ``key_seq`` is its permanent place among the jobs of its key: the seq of its enqueue.
    """

    key: str | None = None
    key_seq: Whole = 0
    depends_on: tuple[str, ...] = ()
    waiting_for: tuple[str, ...] = ()
    hold: bool = False


NO_TIES = Ties()


class Replays(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How often a job was replayed; when, by whom and why the last time."""

    count: Whole
    last_at_us: Whole
    last_by: str
    last_why: str
    run: str = ""
    """The replay run that took it, if one did."""


class Job(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job as stored. New fields go at the end: older records lack them.

    ``attempt`` counts the runs that were charged. ``token`` is the last one issued; it holds the
    job only while the job is in flight. (``run_at_us``, ``seq``) is its place within its
    priority. A completed or cancelled job may have lost its payload: it is empty then.
    """

    id: str
    tenant: str
    scope: str
    queue: str
    task: str
    payload: bytes
    priority: int
    max_attempts: Whole
    created_at_us: Whole
    run_at_us: Whole
    seq: Whole
    state: State = State.PENDING
    attempt: Whole = 0
    expires_at_us: Whole | None = None
    unique: str | None = None
    estimated_seconds: float | None = None
    max_processing_seconds: float | None = None
    version: Whole = 1
    token: Whole = 0
    worker: str = ""
    claimed_at_us: Whole = 0
    lease_until_us: Whole = 0
    losses: Whole = 0
    failure: Failure | None = None
    finished_at_us: Whole = 0
    result: bytes | None = None
    attempts_before_replay: Whole = 0
    ties: Ties = NO_TIES
    replays: Replays | None = None
    stop_requested: bool = False
    """Whether its worker was asked to stop it: it ends cancelled, unless it completes."""
    cancel_reason: str = ""

    @property
    def place(self) -> tuple[int, int]:
        """Its place among the pending jobs of its priority: lower is sooner."""
        return self.run_at_us, self.seq

    def arguments(self) -> dict[str, object]:
        """Return the payload, decoded."""
        return _OBJECT.decode(self.payload)


class Edit(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Changes to a job that is not running; None: no change."""

    payload: Mapping[str, object] | bytes | None = None
    priority: int | None = None
    max_attempts: int | None = None
    run_at_us: int | None = None
    task: str | None = None

    def check(self, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        """Raise ``InvalidInput`` naming the bad field."""
        if self.payload is not None:
            check_payload(encode_payload(self.payload), max_payload_bytes)
        if self.priority is not None:
            _whole("priority", self.priority, *PRIORITIES)
        if self.max_attempts is not None:
            _whole("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        if self.run_at_us is not None:
            _whole("run_at_us", self.run_at_us, 0, MAX_TIME_US)
        if self.task is not None:
            check_name("task", self.task)


@runtime_checkable
class JobRef(Protocol):
    """A reference to a job: a ``Job``, or any object with its tenant and id."""

    @property
    def id(self) -> str:
        """The job's id within its tenant."""

    @property
    def tenant(self) -> str:
        """The job's tenant."""


Kind = tuple[str, str, str, int, int]
"""Tenant, queue, task, priority and max_attempts, which many jobs share."""

BAD_PAYLOAD = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What encoders and decoders raise."""
_OBJECT = msgspec.json.Decoder(dict[str, object])
_ENCODE = msgspec.json.Encoder().encode


def admit(
    new: NewJob,
    job_id: str,
    now_us: int,
    seq: int,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    created_at_us: int | None = None,
) -> Job:
    """Return the requested job, under an id that was checked before.

    ``created_at_us`` is now, or a little later for the others of a batch: lists are sorted by it.
    Raise ``InvalidInput`` naming the bad field.
    """
    payload, (tenant, queue, task, priority, max_attempts) = accept(new, max_payload_bytes)
    run_at_us, expires_at_us = now_us, None
    if new.run_at_us is not None or new.delay_seconds is not None:
        asked_us = _moment("run_at_us", new.run_at_us, "delay_seconds", new.delay_seconds, now_us)
        run_at_us = max(asked_us, now_us)
    if new.expires_at_us is not None or new.expires_seconds is not None:
        expires_at_us = _moment(
            "expires_at_us", new.expires_at_us, "expires_seconds", new.expires_seconds, now_us
        )
    state, ties = State.PENDING, NO_TIES
    if new.key is not None or new.depends_on or new.hold:
        ties = _ties(new, job_id, seq)
        state = State.BLOCKED if ties.waiting_for or ties.hold else State.PENDING
    return Job(
        job_id,
        tenant,
        new.scope,
        queue,
        task,
        payload,
        priority,
        max_attempts,
        now_us if created_at_us is None else created_at_us,
        run_at_us,
        seq,
        state,
        0,
        expires_at_us,
        None if new.unique is None else check_name("unique", new.unique),
        new.estimated_seconds,
        new.max_processing_seconds,
        ties=ties,
    )


def accept(new: NewJob, max_payload_bytes: int) -> tuple[bytes, Kind]:
    """Return the payload and the kind of a request, checked.

    Check all other fields too, except times and ties. Raise ``InvalidInput`` naming the bad one.
    """
    payload = check_payload(encode_payload(new.payload), max_payload_bytes)
    if new.estimated_seconds is not None:
        check_seconds("estimated_seconds", new.estimated_seconds, MAX_LEASE_SECONDS)
    if new.max_processing_seconds is not None:
        check_seconds("max_processing_seconds", new.max_processing_seconds)
    if new.scope != "":
        check_scope(new.scope)
    try:
        kind = _kind(new.tenant, new.queue, new.task, new.priority, new.max_attempts)
    except TypeError:  # not hashable: the check itself names the field
        kind = _kind.__wrapped__(new.tenant, new.queue, new.task, new.priority, new.max_attempts)
    return payload, kind


def _ties(new: NewJob, job_id: str, seq: int) -> Ties:
    """Return the requested ties, with all dependencies open."""
    if type(new.hold) is not bool:
        raise InvalidInput("hold", f"{_shown(new.hold)} is not true or false")
    wanted: object = new.depends_on
    if not isinstance(wanted, tuple | list):
        raise InvalidInput("depends_on", f"{_shown(wanted)} is not a list of job ids")
    depends_on = tuple(dict.fromkeys(check_id(needed, "depends_on") for needed in wanted))
    if len(depends_on) > MAX_DEPENDENCIES:
        raise InvalidInput("depends_on", f"a job waits for at most {MAX_DEPENDENCIES:,} others")
    if job_id in depends_on:
        raise InvalidInput("depends_on", f"job {job_id!r} would wait for itself")
    key = None if new.key is None else check_name("key", new.key)
    return Ties(key, 0 if key is None else seq, depends_on, depends_on, new.hold)


@lru_cache(maxsize=4096, typed=True)
def _kind(tenant: str, queue: str, task: str, priority: int, max_attempts: int) -> Kind:
    """Return these, checked and interned, because many jobs share them."""
    return (
        check_name("tenant", tenant),
        check_name("queue", queue),
        check_name("task", task),
        _whole("priority", priority, *PRIORITIES),
        _whole("max_attempts", max_attempts, 1, MAX_ATTEMPTS),
    )


def encode_payload(payload: Mapping[str, object] | bytes) -> bytes:
    """Return the payload as JSON in a buffer of its own size, or raise ``PayloadInvalid``.

    A mapping may only hold what JSON carries unchanged.
    """
    try:
        if type(payload) is bytes:
            _OBJECT.decode(payload)
            return bytes(memoryview(payload))
        if type(payload) is not dict and not isinstance(payload, Mapping):
            raise PayloadInvalid("payload", f"a {type(payload).__name__} is not a JSON object")
        for name, value in payload.items():
            if type(name) is not str:
                raise PayloadInvalid("payload", f"its field {name!r} is not named by text")
            if (problem := changed_by_json(value, name)) is not None:
                raise PayloadInvalid("payload", f"{problem}: convert it first")
        encoded = _ENCODE(payload)
    except BAD_PAYLOAD as error:
        reason = f"not a JSON object ({str(error) or type(error).__name__})"
        raise PayloadInvalid("payload", reason) from None
    # Encoders over-allocate and shrink in place: copy, so that the slack is not kept.
    return bytes(memoryview(encoded))


def check_payload(payload: bytes, max_payload_bytes: int) -> bytes:
    """Return an encoded payload, or raise ``TooLarge``."""
    if len(payload) > max_payload_bytes:
        raise TooLarge(
            "payload", len(payload), max_payload_bytes, "store it elsewhere and enqueue a reference"
        )
    return payload


def check_id(value: str, field: str = "id") -> str:
    """Return the id, or raise ``InvalidInput``."""
    if type(value) is not str or not 0 < len(value) <= NAME_LIMIT or not value.isprintable():
        raise InvalidInput(field, f"{_shown(value)} is not 1 to {NAME_LIMIT} printable characters")
    return value


@lru_cache(maxsize=4096)
def _shared(field: str, value: str) -> str:
    return intern(check_id(value, field))


def check_name(field: str, value: str) -> str:
    """Return the name, interned, or raise ``InvalidInput``."""
    # Check the type first: a key of the cache must be hashable and a real str.
    return _shared(field, value) if type(value) is str else check_id(value, field)


def check_scope(scope: str) -> str:
    """Return the scope path, interned, or raise ``InvalidInput``."""
    return _shared_scope(scope) if type(scope) is str else _shared_scope.__wrapped__(scope)


@lru_cache(maxsize=4096)
def _shared_scope(scope: str) -> str:
    whole = type(scope) is str and len(scope) <= SCOPE_LIMIT and scope.isprintable()
    if not whole or not all(scope.split("/")):
        raise InvalidInput("scope", f"{_shown(scope)} is not a path such as 'library:42/book:7'")
    return intern(scope)


def check_seconds(field: str, value: float, most: float = MAX_TIME_US / MICROSECONDS) -> float:
    """Return a duration above zero and at most ``most``, or raise ``InvalidInput``."""
    if type(value) in (int, float) and value <= 0:
        raise InvalidInput(field, f"{value!r} is too short: give more than 0 seconds")
    if type(value) not in (int, float) or not value <= most:
        raise InvalidInput(field, f"{value!r} is not a number of seconds up to {most:g}")
    return float(value)


def check_size(field: str, value: int, least: int, most: int = MAX_TIME_US) -> int:
    """Return a number of bytes or files, or raise ``InvalidInput``."""
    return _whole(field, value, least, most)


def _whole(field: str, value: int, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise InvalidInput(field, f"{value!r} is not a whole number from {least:,} to {most:,}")
    return value


def _moment(
    at_field: str, at_us: int | None, in_field: str, seconds: float | None, now_us: int
) -> int:
    """Return the time that one of these two fields gives."""
    if seconds is None:
        return now_us if at_us is None else _whole(at_field, at_us, 0, MAX_TIME_US)
    if at_us is not None:
        raise InvalidInput(in_field, f"give {in_field} or {at_field}, not both")
    if seconds == 0:
        return now_us
    return min(now_us + int(check_seconds(in_field, seconds) * MICROSECONDS), MAX_TIME_US)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
