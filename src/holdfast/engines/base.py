"""The engine contract: what every place that keeps work must do, in the same words.

Verbs are asynchronous and take many at once. Whatever an engine answers, a refusal included, it
has made as durable as it promises before it answers. Every verb is confined to what its caller
reaches: work outside is treated as if it did not exist.

``holdfast.testing.conformance`` is this contract as tests; ``engines.memory`` is its oracle.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from holdfast.model.access import DEFAULT_TENANT, SYSTEM, Caller
from holdfast.model.errors import LeaseLost
from holdfast.model.job import Job, JobRef, NewJob, check_seconds, check_size
from holdfast.model.outcome import Outcome

DEFAULT_LEASE_SECONDS = 30.0
MAX_CLAIM = 10_000
"""The most jobs that one call may claim or reclaim."""

OWN_SLOT_PREFIX = "own/"
"""Workers of this prefix live in the process that owns the store and die with it."""

OnDuplicate = Literal["refuse", "skip"]


class Capabilities(msgspec.Struct, frozen=True):
    """What an engine can and cannot do: callers ask, they never guess."""

    name: str
    durable: bool
    """Whether acknowledged work survives the end of the process."""
    shared: bool
    """Whether several processes may open it at once."""


class Admission(enum.StrEnum):
    """What became of one enqueue request."""

    CREATED = "created"
    EXISTING = "existing"
    """Its ``unique`` key is taken by an unfinished job: the receipt names that one."""
    SKIPPED = "skipped"
    """Its id is a duplicate, and the caller asked to skip those."""


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The answer to one enqueue request."""

    id: str
    admission: Admission = Admission.CREATED


class Claim(msgspec.Struct, frozen=True):
    """The answer to a claim: jobs in hand, and what became of the outcomes sent along."""

    jobs: list[Job]
    settled: list[LeaseLost | None]


class Reclaim(msgspec.Struct, frozen=True):
    """What a reclaim found: each job as it is now, pending again or dead."""

    lost: list[Job]
    expired: list[Job]


class Counts(msgspec.Struct, frozen=True):
    """How many jobs a queue keeps in each state; finished ones count while they are kept."""

    blocked: int = 0
    pending: int = 0
    in_flight: int = 0
    completed: int = 0
    cancelled: int = 0
    dead: int = 0
    archived: int = 0


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that mean the same on every engine."""

    remember_seconds: float = 3_600.0
    """How long a completed or cancelled job is kept and its id refused."""
    max_processing_seconds: float = 600.0
    """How long a job may stay claimed, heartbeats or not, unless it says otherwise."""
    max_payload_bytes: int = 256 * 1024

    def __post_init__(self) -> None:
        for field in ("remember_seconds", "max_processing_seconds"):
            check_seconds(field, getattr(self, field))
        check_size("max_payload_bytes", self.max_payload_bytes, 2, 8 << 20)


@runtime_checkable
class HeldJob(JobRef, Protocol):
    """A job and the token under which somebody holds it: a claimed ``Job`` is one."""

    @property
    def token(self) -> int:
        """The token that the claim gave."""


class Engine(Protocol):
    """The verbs that move work, and those that look at it."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""

    @property
    def leases_refused(self) -> int:
        """How many settles and extensions were refused for a stale token since opening."""

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
    ) -> list[Receipt]:
        """Take these jobs, all or none; return a receipt for each, in order.

        Raise ``DuplicateId``, ``InvalidInput``, ``AccessDenied``, ``TooLarge`` or
        ``StorageFull``; then nothing was taken.
        """

    async def claim(
        self,
        *,
        queues: Collection[str],
        worker: str,
        tasks: Collection[str] | None = None,
        limit: int = 1,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        wait_seconds: float = 0.0,
        settle: Sequence[Outcome] = (),
        caller: Caller = SYSTEM,
    ) -> Claim:
        """Settle these outcomes, then hand out up to ``limit`` due jobs, in one step.

        Jobs come by priority, highest first, then in the order in which they became due, whatever
        their queue. Only these tasks are claimed; None is any task. With nothing to hand out and
        nothing to settle, wait up to ``wait_seconds`` for work.
        """

    async def settle(
        self, outcomes: Sequence[Outcome], *, caller: Caller = SYSTEM
    ) -> list[LeaseLost | None]:
        """Record outcomes; for each, in order, None or the ``LeaseLost`` that refused it."""

    async def extend(
        self, held: Sequence[HeldJob], *, lease_seconds: float, caller: Caller = SYSTEM
    ) -> list[int | LeaseLost]:
        """Renew leases from now; for each, in order, when it ends (in µs) or a ``LeaseLost``.

        No lease is renewed past the job's ``max_processing_seconds``, and none ends sooner.
        """

    async def reclaim(
        self,
        *,
        limit: int = 1_000,
        forced: Sequence[JobRef] = (),
        caller: Caller = SYSTEM,
    ) -> Reclaim:
        """End the leases that ran out and bury what expired unclaimed, up to ``limit`` of each.

        Jobs in ``forced`` lose their lease now, whenever it ends; those not in flight are left.
        """

    async def get(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Job | None]:
        """Return these jobs, in order; None for one that does not exist or is out of reach."""

    async def counts(self, *, caller: Caller = SYSTEM) -> Mapping[str, Counts]:
        """Return the counts of each queue that has any job."""

    async def validate(self) -> list[str]:
        """Check every invariant; return what is wrong, a sentence each. Nothing is good news."""

    async def close(self) -> None:
        """Answer what is under way and let go of everything; harmless when repeated."""
