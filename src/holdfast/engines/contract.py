"""The engine contract: the interface that every engine implements, with its guarantees.

Verbs are asynchronous and take many items at once. Before an engine answers, refusals included, it
makes what the answer rests on as durable as it promises. Every verb is confined to the tenant and
scopes of its caller: other jobs are treated as if they did not exist.

``holdfast.testing.conformance`` is this contract as tests; ``engines.memory`` is its oracle.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from holdfast.model.access import DEFAULT_TENANT, SYSTEM, Caller
from holdfast.model.actions import AnyAction
from holdfast.model.audit import (
    WHOLE_AUDIT,
    Attribution,
    AuditEntry,
    AuditFilter,
    AuditHead,
    AuditRecord,
)
from holdfast.model.change_feed import ChangeMarks
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import InvalidInput, LeaseLost
from holdfast.model.explain import Explanation
from holdfast.model.fleet import (
    CommandAnswer,
    SentCommand,
    WorkerCommand,
    WorkerEntry,
    WorkerProcess,
)
from holdfast.model.group_life import GroupChange
from holdfast.model.history import History
from holdfast.model.job import Edit, Job, JobRef, NewJob, check_seconds, check_size
from holdfast.model.operation import NewOperation, Operation, OperationChange, OperationStep
from holdfast.model.outage import (
    DEFAULT_OUTAGE_MAX_SECONDS,
    DependencyReport,
    Outage,
    OutageUpdate,
)
from holdfast.model.outcome import Outcome
from holdfast.model.policy import QueuePolicy
from holdfast.model.record import Record
from holdfast.model.samples import SAMPLE_SECONDS, Series
from holdfast.model.search import EVERYTHING, Count, FailureGroup, Filter, Order, Page

from .dump.format import DumpRecord
from .event_contract import EventEngine
from .projection_contract import ProjectionEngine
from .record_contract import RecordEngine

DEFAULT_LEASE_SECONDS = 30.0
MAX_CLAIM = 10_000
"""The most jobs that one call may claim or reclaim."""

MAX_EXPLAINED = 100
"""The most jobs that one call explains."""

MIN_HISTORY_BYTES = 64 * 1024
"""The least that ``max_history_bytes`` may be."""

MOST_PAYLOAD_BYTES = 8 << 20
"""The most that ``max_payload_bytes`` may allow."""

OWN_SLOT_PREFIX = "own/"
"""Workers of this prefix live in the process that owns the store and die with it."""

OnDuplicate = Literal["refuse", "skip"]


class Capabilities(msgspec.Struct, frozen=True):
    """What an engine can and cannot do."""

    name: str
    durable: bool
    """Whether acknowledged work survives the end of the process."""
    shared: bool
    """Whether several processes may open it at once."""
    calls_at_once: int = 1
    """How many concurrent calls of one worker keep it busy: more than 1 for a server."""


class Admission(enum.StrEnum):
    """The result of one enqueued job."""

    CREATED = "created"
    EXISTING = "existing"
    """An unfinished job has its ``unique`` key: the receipt names that job."""
    SKIPPED = "skipped"
    """Its id is a duplicate, and the caller asked to skip those."""


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The answer for one enqueued job."""

    id: str
    admission: Admission = Admission.CREATED


class Claim(msgspec.Struct, frozen=True):
    """The answer to a claim: the claimed jobs, and the answers for the settled outcomes."""

    jobs: list[Job]
    settled: list[LeaseLost | None]


class Renewal(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The answer to an extension: when the lease ends, and whether cancellation was requested."""

    lease_until_us: int
    stop_requested: bool = False


class Reclaim(msgspec.Struct, frozen=True):
    """What a reclaim found: each job as it is now, pending again, dead or cancelled."""

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


class AdminResult(msgspec.Struct, frozen=True):
    """What came of an operation: each job as it is now, and what was left as it was."""

    jobs: list[Job]
    kept: int = 0
    """How many were left alone: their failure is deterministic and no fix is named, another job
    does their work, or they were asked before."""
    more: bool = False
    """Whether there was more to do than one call does: call again."""


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that mean the same on every engine."""

    remember_seconds: float = 86_400.0
    """How long a completed or cancelled job is kept and its id refused."""
    max_history_bytes: int = 1 << 30
    """About how many bytes of completed and cancelled jobs are kept: beyond that, those that
    finished first go before their time."""
    keep_payload: bool = True
    """Whether completed and cancelled jobs keep their payload, where no policy says otherwise."""
    max_processing_seconds: float | None = None
    """How long a job without a cap of its own may stay claimed, heartbeats or not. None: what its
    worker says, which is its timeout and a minute."""
    max_payload_bytes: int = 256 * 1024
    outage_max_seconds: float = DEFAULT_OUTAGE_MAX_SECONDS
    """For how long the failures of an outage cost no attempt."""

    def __post_init__(self) -> None:
        check_seconds("remember_seconds", self.remember_seconds)
        if self.max_processing_seconds is not None:
            check_seconds("max_processing_seconds", self.max_processing_seconds)
        check_size("max_history_bytes", self.max_history_bytes, MIN_HISTORY_BYTES)
        if type(self.keep_payload) is not bool:
            raise InvalidInput("keep_payload", f"{self.keep_payload!r} is not true or false")
        check_size("max_payload_bytes", self.max_payload_bytes, 2, MOST_PAYLOAD_BYTES)
        check_seconds("outage_max_seconds", self.outage_max_seconds)


@runtime_checkable
class HeldJob(JobRef, Protocol):
    """A job and the token of its current lease: a claimed ``Job`` is one."""

    @property
    def token(self) -> int:
        """The token that the claim gave."""

    @property
    def max_processing_seconds(self) -> float | None:
        """The cap that its worker asks for: used if neither the job nor the engine has one."""


class Engine(EventEngine, ProjectionEngine, RecordEngine, Protocol):
    """The verbs that move work and look at it, and those of events and projections."""

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
        once: Record | None = None,
    ) -> list[Receipt]:
        """Take these jobs, all or none; return a receipt for each, in order.

        ``once`` is a record that is committed with them, if at least one is created.

        Raise ``DuplicateId``, ``InvalidInput``, ``AccessDenied``, ``TooLarge``, ``StorageFull``,
        or ``ChangedMeanwhile`` if the record exists; then nothing was taken.
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
        chain: int = 1,
        caller: Caller = SYSTEM,
    ) -> Claim:
        """Settle these outcomes, then hand out up to ``limit`` due jobs, in one step.

        Jobs come by priority, highest first, then in the order in which they became due, whatever
        their queue. Only these tasks are claimed; None is any task. With nothing to hand out and
        nothing to settle, wait up to ``wait_seconds`` for work.

        Of a key, the first job is handed out. If that leaves room, up to ``chain`` jobs of each
        key are, in its order and right behind its first one: key by key, as long as the next one
        is pending, due, unexpired, of the same task and within reach. A job with a failure comes
        alone. Queues with limits or an outage have no chains.
        """

    async def settle(
        self, outcomes: Sequence[Outcome], *, caller: Caller = SYSTEM
    ) -> list[LeaseLost | None]:
        """Record outcomes; for each, in order, None or the ``LeaseLost`` that refused it.

        Of jobs of one key that are in flight together, only the first may end, after the earlier
        outcomes of this call; any may be released or lost. When one ends otherwise than completed
        or cancelled, those behind it are released, or lost if it is: see ``model.chain``.
        """

    async def extend(
        self, held: Sequence[HeldJob], *, lease_seconds: float, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """Renew leases from now; for each, in order, the renewal or a ``LeaseLost``.

        No lease is renewed past the ``max_processing_seconds`` of the job, else of the engine,
        else of its holder; and none ends sooner.
        """

    async def leases(
        self, held: Sequence[HeldJob], *, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """Return what ``extend`` would find, and renew nothing: for each, in order."""

    async def reclaim(
        self,
        *,
        limit: int = 1_000,
        forced: Sequence[JobRef] = (),
        attribution: Attribution | None = None,
        every_seconds: float = 0.0,
        caller: Caller = SYSTEM,
    ) -> Reclaim:
        """End expired leases, and make dead the jobs that expired unclaimed; ``limit`` of each.

        Jobs in ``forced`` lose their lease now; those not in flight are left alone. With a job of a
        key those behind it that are in flight too are lost.
        ``attribution`` is who forces it and why: it is in the failure of those jobs, and its audit
        entries are committed with the first of them. A periodic loop passes its interval as
        ``every_seconds``: of several processes that share a store, one does the work each time.
        """

    async def get(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Job | None]:
        """Return these jobs, in order; None for one that does not exist or is out of reach."""

    async def find(
        self,
        wanted: Filter = EVERYTHING,
        *,
        cursor: str = "",
        limit: int = 100,
        order: Order = Order.CREATED,
        caller: Caller = SYSTEM,
    ) -> Page:
        """Return a page of jobs, by default the oldest first.

        A page's cursor, with the same filter and order, asks for the next page. No job comes twice,
        unless what its order goes by has changed meanwhile. A cursor of another filter or order is
        refused; only the times of the filter may be others.
        """

    async def count(
        self, wanted: Filter = EVERYTHING, *, cap: int = 10_000, caller: Caller = SYSTEM
    ) -> Count:
        """Count the jobs that a filter finds, up to ``cap`` and never further."""

    async def counts(self, *, caller: Caller = SYSTEM) -> Mapping[str, Counts]:
        """Return the counts of each queue that has any job."""

    async def queues(self, *, caller: Caller = SYSTEM) -> list[str]:
        """Return the queues that have unfinished jobs, in order, without counting them."""

    async def groups(
        self, wanted: Filter = EVERYTHING, *, caller: Caller = SYSTEM
    ) -> list[FailureGroup]:
        """Return the dead letters that match a filter in groups, the largest first.

        A group that a person touched is listed without dead letters too, for a caller of unlimited
        reach and a filter about whole groups, until 90 days after the last act and death.
        """

    async def history(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[History | None]:
        """Return what happened to these jobs, in order; None where there is no such job."""

    async def explain(
        self, ids: Sequence[str], *, tenant: str = DEFAULT_TENANT, caller: Caller = SYSTEM
    ) -> list[Explanation | None]:
        """Return what keeps each of these jobs from being claimed; None where there is none.

        Nothing does exactly when a claim from its queue for all tasks, of ``MAX_CLAIM`` jobs,
        would return it now. At most ``MAX_EXPLAINED`` at once.
        """

    async def validate(self) -> list[str]:
        """Check every invariant; return a sentence for each violation, an empty list for none."""

    # --- operate -----------------------------------------------------------------------------
    #
    # What people do, with who and why. A filter selects up to ``limit`` jobs, oldest first. If it
    # names a job by id that the action cannot be applied to, the whole call fails. The engine adds
    # to the audit entries what was done: see ``model.audit_changes``.

    async def operate(
        self,
        action: AnyAction,
        wanted: Filter,
        attribution: Attribution,
        *,
        limit: int = 1_000,
        caller: Caller = SYSTEM,
    ) -> AdminResult:
        """Apply an action to the jobs that a filter finds; see ``model.actions`` for each action.

        Raise ``InvalidInput``, or ``JobNotFound`` and ``IllegalTransition`` for a job that the
        filter names by id; then nothing was changed.
        """

    async def edit(
        self,
        job: JobRef,
        changes: Edit,
        attribution: Attribution,
        *,
        version: int | None = None,
        caller: Caller = SYSTEM,
    ) -> Job:
        """Change a job that is pending, blocked or dead; return it as it is now.

        Raise ``StaleVersion`` if its version is another, ``JobNotFound``, ``IllegalTransition``.
        """

    async def policies(self) -> Mapping[str, QueuePolicy]:
        """Return the policies of queues that have one of their own."""

    async def set_policy(
        self,
        queue: str,
        policy: QueuePolicy | None,
        attribution: Attribution,
        *,
        expected: QueuePolicy | None = None,
        caller: Caller = SYSTEM,
    ) -> None:
        """Set the policy of a queue; None restores the default.

        Raise ``ChangedMeanwhile`` if the current policy is not ``expected``.
        """

    async def flags(self) -> Mapping[str, bool]:
        """Return the flags that were switched."""

    async def set_flag(
        self, name: str, attribution: Attribution, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """Switch a flag; None removes it."""

    async def schedules(self) -> Mapping[str, ScheduleState]:
        """Return the stored schedules."""

    async def set_schedule(
        self,
        name: str,
        schedule: ScheduleState | None,
        attribution: Attribution,
        *,
        expected: ScheduleState | None = None,
        caller: Caller = SYSTEM,
    ) -> None:
        """Store a schedule, or change it; None removes it.

        Raise ``ChangedMeanwhile`` if it is not as ``expected``.
        """

    async def set_group(
        self,
        group_id: str,
        change: GroupChange,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> FailureGroup | None:
        """Store what a person does with a group; return the group as it is now.

        None: it was forgotten, and has no dead letters. Its audit entries get what was stored
        before and after. Raise ``UnknownGroup``; ``AccessDenied`` if the reach of the caller is
        limited, as a group is of all tenants.
        """

    # --- outages -----------------------------------------------------------------------------
    #
    # While a dependency is out, claims hand out one job of its queues at a time, and a failure of
    # its jobs that tells of the outage costs no attempt. See ``model.outage``.

    async def outages(self, *, ended: bool = False) -> list[Outage]:
        """Return the outages that last, by dependency; with ``ended`` before them the last ones
        that have ended, in the order of their end.
        """

    async def report_outage(self, reports: Sequence[DependencyReport] = ()) -> OutageUpdate:
        """Take what a worker process has seen of dependencies; start, change and end outages by it.

        Without reports it ends the recoveries that are over. Call it every second or so while
        there are outages.
        """

    async def set_outage(
        self, dependency: str, attribution: Attribution, *, on: bool, caller: Caller = SYSTEM
    ) -> Outage:
        """Start an outage by hand, or end one; return it as it is now.

        Raise ``InvalidInput`` if it is out already, or is not.
        """

    # --- operations --------------------------------------------------------------------------
    #
    # Actions on many jobs that are stored: see ``model.operation``. An operation goes on when
    # ``advance_operation`` is called, by any process: each call is one commit.

    async def now_us(self) -> int:
        """Return the time of the engine: the moment of a plan."""

    async def start_operation(
        self, new: NewOperation, attribution: Attribution, *, caller: Caller = SYSTEM
    ) -> Operation:
        """Store an operation; nothing is acted on yet. A repeated request returns the first one.

        Raise ``InvalidInput``, ``DuplicateId`` if another operation has its id, or, for a job that
        its filter names by id, ``JobNotFound`` or ``IllegalTransition``.
        """

    async def advance_operation(self, operation_id: str) -> OperationStep:
        """Take one step: act on the members that are due, up to a thousand, or on none.

        A member is acted on at most once by an operation, whatever happens. Raise
        ``UnknownOperation``.
        """

    async def operations(
        self, *, running: bool = False, limit: int = 100, caller: Caller = SYSTEM
    ) -> list[Operation]:
        """Return the operations, newest first; with ``running`` those that have not ended."""

    async def operation(self, operation_id: str, *, caller: Caller = SYSTEM) -> Operation:
        """Return one operation, or raise ``UnknownOperation``."""

    async def change_operation(
        self,
        operation_id: str,
        change: OperationChange,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> Operation:
        """Pause, resume or abort an operation, or change its rate; return it as it is now.

        Raise ``UnknownOperation``, ``InvalidInput`` if it has ended, or ``ChangedMeanwhile``.
        """

    # --- the fleet ---------------------------------------------------------------------------
    #
    # A registry of the processes that run jobs. It is not work: a crash of the store empties it,
    # and each process enters itself again with its next announcement.

    async def announce(
        self,
        process: WorkerProcess,
        *,
        ttl_seconds: float,
        answers: Sequence[CommandAnswer] = (),
    ) -> list[SentCommand]:
        """Enter this process, or renew its entry; return the commands that wait for its answer.

        Without another announcement within ``ttl_seconds`` it is not live. Raise
        ``WorkerIdInUse`` if a live process claims under one of its names.
        """

    async def depart(self, process_id: str) -> None:
        """Remove the entry of a process that stops, or that is known to be gone."""

    async def workers(self, *, gone: bool = False) -> list[WorkerEntry]:
        """Return the live processes, by name; with ``gone``, also those that fell silent lately."""

    async def command(
        self,
        command: WorkerCommand,
        process_ids: Sequence[str],
        attribution: Attribution,
        *,
        ttl_seconds: float,
        caller: Caller = SYSTEM,
    ) -> str:
        """Send a command to these processes; return its id.

        A process that has not fetched it within ``ttl_seconds`` does not get it.
        """

    async def answers(self, command_id: str) -> list[CommandAnswer]:
        """Return the answers to a command that have come so far."""

    # --- samples -----------------------------------------------------------------------------
    #
    # What a person looks at. They are expendable: a crash of a server, or a damaged file, may lose
    # them, and never stops work. They are of all tenants: a confined caller is refused.

    async def take_sample(
        self, *, every_seconds: float = SAMPLE_SECONDS, caller: Caller = SYSTEM
    ) -> float:
        """Take a sample of every queue, if it is time; return the seconds until the next.

        It is time when the last one, of any process, is ``every_seconds`` old, and 20 times as old
        as it took to take. Rates are those of the whole store.
        """

    async def samples(
        self,
        queues: Collection[str] = (),
        *,
        from_us: int,
        to_us: int,
        step_seconds: float = 0.0,
        caller: Caller = SYSTEM,
    ) -> Series:
        """Return the samples of these queues, or of all: at most 500 points each.

        The samples themselves are kept for 2 hours, points of a minute for 48 hours. A point
        has the greatest depth and age of its time, and mean rates. ``step_seconds`` is how far
        points are apart at least; 0 is as fine as possible.
        """

    async def changes(self, *, caller: Caller = SYSTEM) -> ChangeMarks:
        """Return a mark for each topic that has something in it or has changed.

        A mark that differs from that of an earlier call of the same feed says that the topic has
        changed since; the same mark, or none in both, that it has not. Notes on jobs do not count,
        nor do jobs that are forgotten. Who looks should look again within a minute.
        """

    # --- keep --------------------------------------------------------------------------------

    async def audit(self, entries: Sequence[AuditEntry], *, caller: Caller = SYSTEM) -> AuditHead:
        """Add entries to the audit log without an action, such as a denial; return its new head."""

    def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """Return everything in the store as of one moment, in batches; the head comes first."""

    async def audited(
        self,
        wanted: AuditFilter = WHOLE_AUDIT,
        *,
        after: int = 0,
        limit: int = 100,
        newest: bool = False,
    ) -> list[AuditRecord]:
        """Return records of the audit, oldest first, or newest first.

        The number of the last one, as ``after`` with the same filter, asks for the next page; 0 is
        the first page. A page with fewer than ``limit`` is the last.
        """

    async def close(self) -> None:
        """Finish the calls in progress and release all resources; may be called twice."""
