"""Projections and their rebuilds as people see them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.model.job import MICROSECONDS, Job, State
from holdfast.model.lifecycle import attempts_used
from holdfast.model.projection import Rebuild
from holdfast.model.read_model import Row

from .views import date_of

OUTBOX_STATES = {
    "pending": (State.PENDING, State.BLOCKED),
    "processing": (State.IN_FLIGHT,),
    "done": (State.COMPLETED,),
    "failed": (State.DEAD,),
}
"""The words of the outbox, and which jobs they stand for: what was cancelled or set aside is not
in the outbox."""
_WORDS = {state: word for word, states in OUTBOX_STATES.items() for state in states}


class RebuildView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rebuild: what was asked for, how far it is, or how it ended."""

    id: str
    mode: str
    phase: str
    generation: int
    by: str
    started_at: datetime
    seconds: float
    """How long it has taken until now, or took."""
    done: int
    """How many events were read: those that were applied, and those that failed."""
    total: int
    why: str = ""
    ended_at: datetime | None = None
    failed: int = 0
    rate_per_second: float = 0.0
    eta_seconds: float | None = None
    error: str = ""
    rows: int | None = None
    hash: str = ""
    live_rows: int | None = None
    """How many rows the generation before had at the swap, and their hash."""
    live_hash: str = ""

    @classmethod
    def of(cls, rebuild: Rebuild, now_us: int) -> RebuildView:
        """Return a rebuild for people."""
        until_us = rebuild.ended_at_us or now_us
        seconds = max(0, until_us - rebuild.started_at_us) / MICROSECONDS
        done = rebuild.filled + rebuild.failed
        rate = done / seconds if seconds else 0.0
        left = rebuild.total - done
        counted, swapped = bool(rebuild.hash), bool(rebuild.live_hash)
        return cls(
            id=rebuild.id,
            mode=rebuild.mode.value,
            phase=rebuild.phase.value,
            generation=rebuild.generation,
            by=rebuild.by,
            why=rebuild.why,
            started_at=date_of(rebuild.started_at_us),
            ended_at=date_of(rebuild.ended_at_us) if rebuild.ended_at_us else None,
            seconds=round(seconds, 3),
            done=done,
            total=rebuild.total,
            failed=rebuild.failed,
            rate_per_second=round(rate, 1),
            eta_seconds=round(left / rate, 1) if rebuild.running and rate and left >= 0 else None,
            error=rebuild.error,
            rows=rebuild.rows if counted else None,
            hash=rebuild.hash,
            live_rows=rebuild.live_rows if swapped else None,
            live_hash=rebuild.live_hash,
        )


class ProjectionView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A projection: where its readers are, and how far behind."""

    name: str
    state: str
    """``live``, ``paused``, ``incomplete``, ``rebuilding``, ``rebuild failed``, ``new`` (no worker
    has run it yet) or ``removed`` (it gets no events)."""
    generation: int
    """The one that readers see …"""
    version: int
    """… and the version of the declaration that it was made by."""
    queue: str
    lag_events: int
    """How many events wait to be applied, without those behind a failed one of their key."""
    lag_seconds: float
    """For how long the oldest of these has waited."""
    held: int
    """How many events wait behind a failed one of their key."""
    held_keys: int
    """How many keys have a failed event: of these nothing later is applied."""
    failed: int
    slo_met: bool
    table: str = ""
    event_types: list[str] = []
    """Which events it wants; none: all."""
    declared: bool = True
    declared_version: int | None = None
    lag_slo_seconds: float | None = None
    incomplete: bool = False
    paused: bool = False
    rebuild: RebuildView | None = None
    last_rebuild: RebuildView | None = None
    previous_generation: int | None = None
    previous_until: datetime | None = None

    @property
    def outdated(self) -> bool:
        """Whether the declaration is newer than what readers see."""
        return self.declared_version is not None and self.version < self.declared_version


class OutboxRow(msgspec.Struct, frozen=True):
    """A row of the outbox, in the words of the view ``<projection>_outbox_events``."""

    id: str
    status: str
    attempts: int
    next_retry_at: datetime | None
    error_reason: str | None
    last_error: str | None
    owner: str | None
    lease_until: datetime | None
    processing_started_at: datetime | None
    created_at: datetime
    processed_at: datetime | None
    replay_count: int
    last_replayed_at: datetime | None
    last_replayed_by: str | None
    last_replayed_reason: str | None

    @classmethod
    def of(cls, job: Job) -> OutboxRow:
        """Return the row of a job."""
        failure, replays = job.failure, job.replays
        waits, runs = job.state is State.PENDING, job.state is State.IN_FLIGHT
        return cls(
            id=job.id,
            status=_WORDS.get(job.state, job.state.value),
            attempts=attempts_used(job),
            next_retry_at=date_of(job.run_at_us) if waits and failure is not None else None,
            error_reason=None if failure is None else failure.error_reason,
            last_error=None if failure is None else failure.message,
            owner=job.worker or None if runs else None,
            lease_until=_date(job.lease_until_us) if runs else None,
            processing_started_at=_date(job.claimed_at_us),
            created_at=date_of(job.created_at_us),
            processed_at=_date(job.finished_at_us),
            replay_count=0 if replays is None else replays.count,
            last_replayed_at=None if replays is None else _date(replays.last_at_us),
            last_replayed_by=None if replays is None else replays.last_by,
            last_replayed_reason=None if replays is None else replays.last_why,
        )


class OutboxPage(msgspec.Struct, frozen=True):
    """Some rows of an outbox; an empty cursor: there are no more."""

    rows: list[OutboxRow]
    cursor: str = ""


class RowsView(msgspec.Struct, frozen=True):
    """Some rows of the table of a projection."""

    columns: list[str]
    rows: list[Row]
    made: bool
    """Whether a worker has made the table."""
    incomplete: bool


class Removal(msgspec.Struct, frozen=True):
    """What removing a projection did."""

    name: str
    subscriptions: list[str]
    cancelled: int
    kept: int


class MissingJobs(msgspec.Struct, frozen=True):
    """Events that should have a job, or its result, and have none."""

    checked: int
    missing: int = 0
    ids: list[str] = []
    """The first of the jobs that are missing."""
    unknown: int = 0
    """How many may have been forgotten: none that is as old or older is known any more."""


def _date(moment_us: int) -> datetime | None:
    return date_of(moment_us) if moment_us else None
