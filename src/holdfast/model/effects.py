"""Effects: the recorded results of decisions, so that nothing is decided twice.

An effect carries every value that it sets. Its tag is stored: never reuse one. Effects on dead
letters, which are not kept in memory, carry the whole job after the change. ``LOG_NAMES`` are their
names in a log dump.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .audit import AuditRecord
from .event import Event
from .failure import Failure
from .group_life import GroupLife
from .job import Job, State, Whole
from .outage import Outage
from .policy import QueuePolicy
from .projection import ProjectionState
from .record import Record
from .subscription import Subscription


class Enqueued(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """A job was enqueued."""

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
    """It was cancelled."""

    reason: str = ""
    by: str = ""
    """The person who cancelled it, if one did."""


class Retried(_Change, frozen=True, array_like=True, gc=False, tag=6):
    """It failed and is queued again, at the tail."""

    run_at_us: Whole
    failure: Failure


class Released(_Change, frozen=True, array_like=True, gc=False, tag=7):
    """It was released: same place, no attempt charged."""


class Snoozed(_Change, frozen=True, array_like=True, gc=False, tag=8):
    """It was released for later: no attempt charged."""

    run_at_us: Whole
    failure: Failure | None = None
    """The failure that cost no attempt, because its dependency is out."""


class Lost(_Change, frozen=True, array_like=True, gc=False, tag=9):
    """Its lease ended without an outcome: queued again, at the tail, with one more loss."""

    failure: Failure


class Died(_Change, frozen=True, array_like=True, gc=False, tag=10):
    """It failed for good."""

    failure: Failure
    losses: Whole


class Unblocked(_Change, frozen=True, array_like=True, gc=False, tag=11):
    """It waits for nothing any more."""


class _Operated(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at_us: Whole
    job: Job
    """As it is now."""
    by: str
    why: str


class Replayed(_Operated, frozen=True, array_like=True, gc=False, tag=12):
    """A person replayed it."""


class Archived(_Operated, frozen=True, array_like=True, gc=False, tag=13):
    """A person archived it."""


class Restored(_Operated, frozen=True, array_like=True, gc=False, tag=14):
    """A person restored it from the archive."""


class Edited(_Operated, frozen=True, array_like=True, gc=False, tag=15):
    """A person changed it."""

    before: bytes | None
    """The payload that it had, if that was changed."""


class Freed(_Change, frozen=True, array_like=True, gc=False, tag=16):
    """One of the jobs that it waits for is completed; others are not."""

    dependency: str


class Confirmed(_Change, frozen=True, array_like=True, gc=False, tag=17):
    """A person confirmed it."""

    by: str
    why: str


class StopRequested(_Change, frozen=True, array_like=True, gc=False, tag=18):
    """Its worker is asked to stop it."""

    by: str
    why: str


class Noted(_Change, frozen=True, array_like=True, gc=False, tag=19):
    """A person wrote something about it."""

    by: str
    text: str


class Purged(_Change, frozen=True, array_like=True, gc=False, tag=20):
    """A person deleted it with its history. Its fields tell which counts go down."""

    queue: str
    state: State
    key: str | None


class PolicySet(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=21):
    """A queue has another policy; None is the default one."""

    at_us: Whole
    queue: str
    policy: QueuePolicy | None


class FlagSet(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=22):
    """A flag was set; None removes it."""

    at_us: Whole
    name: str
    on: bool | None


class ScheduleState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A schedule as operators see it: its task and times, and which ticks are skipped."""

    expression: str
    time_zone: str
    task: str
    queue: str
    paused: bool = False
    skip_until_us: Whole = 0
    """Ticks up to this time are skipped."""


class ScheduleSet(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=23):
    """A schedule was stored or changed; None removes it."""

    at_us: Whole
    name: str
    schedule: ScheduleState | None


class Audited(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=24):
    """An entry was added to the audit."""

    at_us: Whole
    record: AuditRecord


class OperationSet(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=25):
    """An operation was started, changed, or came further."""

    at_us: Whole
    record: bytes
    """The operation, encoded: effects know nothing of actions."""


class GroupSet(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """A person did something with a group of failures; None forgets what people did."""

    at_us: Whole
    id: str
    life: GroupLife | None


class OutageSet(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=26):
    """An outage began, changed or ended; claims and failures of its jobs change it too."""

    at_us: Whole
    outage: Outage


class EventAppended(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=28):
    """An event was appended; its jobs are in the same commit, and refer to it."""

    at_us: Whole
    event: Event
    """Its position is the sequence number of this effect."""


class SubscriptionSet(msgspec.Struct, frozen=True, array_like=True, tag=29):
    """A subscription was stored or changed; None removes it."""

    at_us: Whole
    name: str
    subscription: Subscription | None
    fanout_version: Whole
    """The version that later events are given to."""


class ProjectionSet(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """What is known about a projection was stored; None forgets it."""

    at_us: Whole
    name: str
    state: ProjectionState | None


class RecordSet(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=31):
    """A record was stored; None removes it."""

    at_us: Whole
    kind: str
    name: str
    record: Record | None


JobEffect = (
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
    | Edited
    | Freed
    | Confirmed
    | StopRequested
    | Noted
    | Purged
)
Setting = (
    PolicySet
    | FlagSet
    | ScheduleSet
    | Audited
    | OperationSet
    | OutageSet
    | GroupSet
    | EventAppended
    | SubscriptionSet
    | ProjectionSet
    | RecordSet
)
"""Effects that are not about one job."""

Effect = JobEffect | Setting

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
    Edited: "EDIT",
    Freed: "FREE",
    Confirmed: "CONFIRM",
    StopRequested: "STOP",
    Noted: "NOTE",
    Purged: "PURGE",
    PolicySet: "POLICY",
    FlagSet: "FLAG",
    ScheduleSet: "SCHEDULE",
    Audited: "AUDIT",
    OperationSet: "OPERATION",
    OutageSet: "OUTAGE",
    GroupSet: "GROUP",
    EventAppended: "EVENT",
    SubscriptionSet: "SUBSCRIPTION",
    ProjectionSet: "PROJECTION",
    RecordSet: "RECORD",
}

WHOLE = (Enqueued, Replayed, Archived, Restored, Edited)
SETTINGS = (
    PolicySet,
    FlagSet,
    ScheduleSet,
    Audited,
    OperationSet,
    OutageSet,
    GroupSet,
    EventAppended,
    SubscriptionSet,
    ProjectionSet,
    RecordSet,
)


def job_key(effect: JobEffect) -> tuple[str, str]:
    """Return the (tenant, id) of the job that the effect changes."""
    if isinstance(effect, WHOLE):
        return effect.job.tenant, effect.job.id
    return effect.tenant, effect.id
