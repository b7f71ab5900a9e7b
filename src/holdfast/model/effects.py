"""Effects: what a decision changed, written down so that it never has to be decided again.

An effect carries every value that it sets. Its tag is stored: never give one to another effect.
``LOG_NAMES`` are the names under which people know them in a log dump.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .failure import Failure
from .job import Job, Whole


class Enqueued(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """A job came to be."""

    at_us: Whole
    job: Job


class _Change(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at_us: Whole
    tenant: str
    id: str


class Claimed(_Change, frozen=True, array_like=True, gc=False, tag=2):
    """A worker holds it under a lease."""

    token: Whole
    worker: str
    lease_until_us: Whole


class Extended(_Change, frozen=True, array_like=True, gc=False, tag=3):
    """Its lease ends later."""

    lease_until_us: Whole


class Completed(_Change, frozen=True, array_like=True, gc=False, tag=4):
    """It is done."""

    result: bytes | None = None


class Cancelled(_Change, frozen=True, array_like=True, gc=False, tag=5):
    """It is not to be done."""


class Retried(_Change, frozen=True, array_like=True, gc=False, tag=6):
    """It failed and is queued again, at the tail."""

    run_at_us: Whole
    failure: Failure


class Released(_Change, frozen=True, array_like=True, gc=False, tag=7):
    """It was handed back: same place, no attempt charged."""


class Snoozed(_Change, frozen=True, array_like=True, gc=False, tag=8):
    """It was handed back for later: no attempt charged."""

    run_at_us: Whole


class Lost(_Change, frozen=True, array_like=True, gc=False, tag=9):
    """Its lease ended without a word: queued again, at the tail, with one loss more."""

    failure: Failure


class Died(_Change, frozen=True, array_like=True, gc=False, tag=10):
    """It failed for good."""

    failure: Failure
    losses: Whole


class Unblocked(_Change, frozen=True, array_like=True, gc=False, tag=11):
    """What it waited for is done."""


class Replayed(_Change, frozen=True, array_like=True, gc=False, tag=12):
    """A person brought it back from the dead."""


class Archived(_Change, frozen=True, array_like=True, gc=False, tag=13):
    """A person laid it aside."""


class Restored(_Change, frozen=True, array_like=True, gc=False, tag=14):
    """A person took it back from the archive."""


Effect = (
    Enqueued
    | Claimed
    | Extended
    | Completed
    | Cancelled
    | Retried
    | Released
    | Snoozed
    | Lost
    | Died
    | Unblocked
    | Replayed
    | Archived
    | Restored
)

LOG_NAMES: Mapping[type[Effect], str] = {
    Enqueued: "ENQUEUE",
    Claimed: "DISPATCH",
    Extended: "EXTEND",
    Completed: "ACK",
    Cancelled: "CANCEL",
    Retried: "RETRY",
    Released: "RELEASE",
    Snoozed: "SNOOZE",
    Lost: "TIMEOUT",
    Died: "DEAD",
    Unblocked: "UNBLOCK",
    Replayed: "REPLAY",
    Archived: "ARCHIVE",
    Restored: "RESTORE",
}


def job_key(effect: Effect) -> tuple[str, str]:
    """Return the (tenant, id) of the job that the effect changes."""
    if isinstance(effect, Enqueued):
        return effect.job.tenant, effect.job.id
    return effect.tenant, effect.id
