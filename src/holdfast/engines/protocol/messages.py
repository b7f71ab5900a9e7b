"""The protocol between a client engine and the process that owns the store.

``POST /engine/v1/{verb}`` takes one call and ``POST /engine/v1/calls`` several, as msgpack. The
answer of a verb comes with 200, a refusal (``ErrorMessage``) with 422; a malformed request
is answered with JSON (``RequestProblem``) and an HTTP status; 503 means that nothing was done and
the same request may work later, 504 that it is unknown what was done. Fields are only ever added
at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import msgspec

from holdfast.engines.contract import (
    AdminResult,
    Claim,
    Counts,
    OnDuplicate,
    Receipt,
    Reclaim,
    Renewal,
)
from holdfast.engines.dump.format import DumpRecord
from holdfast.model.access import SYSTEM, Caller
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
from holdfast.model.errors import HoldfastError, InvalidInput, LeaseLost
from holdfast.model.event import Event, EventReceipt, NewEvent
from holdfast.model.event_search import EventFilter, EventPage
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
from holdfast.model.job import Edit, Job, NewJob
from holdfast.model.operation import NewOperation, Operation, OperationChange, OperationStep
from holdfast.model.outage import DependencyReport, Outage, OutageUpdate
from holdfast.model.outcome import Outcome
from holdfast.model.policy import QueuePolicy
from holdfast.model.projection import ProjectionState
from holdfast.model.record import Record
from holdfast.model.samples import SamplePoint
from holdfast.model.search import Count, FailureGroup, Filter, Order, Page
from holdfast.model.subscription import Subscription

VERSION = 1
ROOT = "/engine/"
PREFIX = f"{ROOT}v{VERSION}/"
CALLS_PATH = PREFIX + "calls"
MAX_CALLS = 1_000
"""In one request: they are made without a break in between."""
MAX_BODY_BYTES = 64 << 20
MAX_REMOTE_BODY_BYTES = 8 << 20
"""Over the network: it is read before it is known what the key may do."""
MSGPACK = "application/msgpack"
PROBLEM_JSON = "application/problem+json"

OK = 200
BAD_REQUEST = 400
UNAUTHENTICATED = 401
NOT_FOUND = 404
WRONG_METHOD = 405
BODY_TOO_LARGE = 413
REFUSED = 422
UNAVAILABLE = 503
OUTCOME_UNKNOWN = 504
IN_DOUBT = (502, OUTCOME_UNKNOWN)
"""From a server, or a proxy before it, whose store went away: the call may have been executed."""

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding raises for malformed bytes."""

Q = TypeVar("Q")
A = TypeVar("A")


class EnqueueCall(msgspec.Struct, frozen=True, array_like=True):
    """Every job has an id of its own and its payload as JSON."""

    jobs: list[NewJob]
    caller: Caller = SYSTEM
    on_duplicate: OnDuplicate = "refuse"
    once: Record | None = None


class ClaimCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.claim``."""

    queues: list[str]
    worker: str
    tasks: list[str] | None
    limit: int
    lease_seconds: float
    wait_seconds: float
    settle: list[Outcome]
    caller: Caller = SYSTEM
    chain: int = 1


class SettleCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.settle``."""

    outcomes: list[Outcome]
    caller: Caller = SYSTEM


class LeaseRef(msgspec.Struct, frozen=True, array_like=True):
    """A job and the token of its lease: ``contract.HeldJob``."""

    tenant: str
    id: str
    token: int
    max_processing_seconds: float | None = None


class JobName(msgspec.Struct, frozen=True, array_like=True):
    """A job by tenant and id: ``model.job.JobRef``."""

    tenant: str
    id: str


class ExtendCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.extend``."""

    held: list[LeaseRef]
    lease_seconds: float
    caller: Caller = SYSTEM


class LeasesCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.leases``."""

    held: list[LeaseRef]
    caller: Caller = SYSTEM


class ReclaimCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.reclaim``."""

    limit: int
    forced: list[JobName]
    caller: Caller = SYSTEM
    attribution: Attribution | None = None


class GetCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.get``."""

    ids: list[str]
    tenant: str
    caller: Caller = SYSTEM


class FindCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.find``."""

    wanted: Filter
    cursor: str
    limit: int
    newest: bool
    """What clients say that do not know ``order``."""
    caller: Caller = SYSTEM
    order: Order | None = None


class CountCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.count``."""

    wanted: Filter
    cap: int
    caller: Caller = SYSTEM


class GroupsCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.groups``."""

    wanted: Filter
    caller: Caller = SYSTEM


class OperateCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.operate``."""

    action: AnyAction
    wanted: Filter
    attribution: Attribution
    limit: int = 1_000
    caller: Caller = SYSTEM


class EditCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.edit``."""

    job: JobName
    changes: Edit
    attribution: Attribution
    version: int | None
    caller: Caller = SYSTEM


class SetPolicyCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.set_policy``."""

    queue: str
    policy: QueuePolicy | None
    attribution: Attribution
    caller: Caller = SYSTEM
    expected: QueuePolicy | None = None


class SetFlagCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.set_flag``."""

    name: str
    on: bool | None
    attribution: Attribution
    caller: Caller = SYSTEM


class SetScheduleCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.set_schedule``."""

    name: str
    schedule: ScheduleState | None
    attribution: Attribution
    caller: Caller = SYSTEM
    expected: ScheduleState | None = None


class SetGroupCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.set_group``."""

    group_id: str
    change: GroupChange
    attribution: Attribution
    caller: Caller = SYSTEM


class OutagesCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.outages``."""

    ended: bool = False


class ReportOutageCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.report_outage``."""

    reports: list[DependencyReport] = []


class SetOutageCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.set_outage``."""

    dependency: str
    on: bool
    attribution: Attribution
    caller: Caller = SYSTEM


class StartOperationCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.start_operation``."""

    new: NewOperation
    attribution: Attribution
    caller: Caller = SYSTEM


class OperationCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.operation`` and ``Engine.advance_operation``."""

    operation_id: str
    caller: Caller = SYSTEM


class OperationsCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.operations``."""

    running: bool
    limit: int
    caller: Caller = SYSTEM


class ChangeOperationCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.change_operation``."""

    operation_id: str
    change: OperationChange
    attribution: Attribution
    caller: Caller = SYSTEM


class AnnounceCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.announce``."""

    process: WorkerProcess
    ttl_seconds: float
    answers: list[CommandAnswer] = []


class DepartCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.depart``."""

    process_id: str


class WorkersCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.workers``."""

    gone: bool = False


class CommandCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.command``."""

    command: WorkerCommand
    process_ids: list[str]
    attribution: Attribution
    ttl_seconds: float
    caller: Caller = SYSTEM


class AnswersCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.answers``."""

    command_id: str


class TakeSampleCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.take_sample``."""

    every_seconds: float
    caller: Caller = SYSTEM


class SamplesCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.samples``."""

    queues: list[str]
    from_us: int
    to_us: int
    step_seconds: float = 0.0
    caller: Caller = SYSTEM


class AuditCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.audit``."""

    entries: list[AuditEntry]
    caller: Caller = SYSTEM


class AuditedCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.audited``."""

    after: int
    limit: int
    wanted: AuditFilter = WHOLE_AUDIT
    newest: bool = False


class DumpCall(msgspec.Struct, frozen=True, array_like=True):
    """The next part of a dump; see ``Engine.dump``. Without a session a new one begins."""

    session: str = ""


class DumpAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A part of a dump, and the session that has the next."""

    session: str
    records: list[DumpRecord]
    done: bool = False


class Empty(msgspec.Struct, frozen=True, array_like=True):
    """A call without arguments, or an empty answer."""


class CountsCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.counts`` and ``Engine.queues``."""

    caller: Caller = SYSTEM


class LostLease(msgspec.Struct, frozen=True, array_like=True):
    """A ``LeaseLost`` inside an answer."""

    job_id: str
    token: int


class ExtendAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A ``Renewal``, or what was ``lost`` instead."""

    lease_until_us: int
    stop_requested: bool = False
    lost: LostLease | None = None


class ClaimAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A ``contract.Claim``."""

    jobs: list[Job]
    settled: list[LostLease | None]


class AppendCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.append``."""

    events: list[NewEvent]
    caller: Caller = SYSTEM
    once: Record | None = None


class FindEventsCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.find_events``."""

    wanted: EventFilter
    cursor: str
    limit: int
    newest: bool
    caller: Caller = SYSTEM


class CountEventsCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.count_events``."""

    wanted: EventFilter
    caller: Caller = SYSTEM


class SetSubscriptionCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.set_subscription``."""

    name: str
    subscription: Subscription | None
    attribution: Attribution
    caller: Caller = SYSTEM


class SetProjectionCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.set_projection``."""

    state: ProjectionState
    attribution: Attribution
    expected: ProjectionState | None
    caller: Caller = SYSTEM


class ChangesCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.changes``."""

    caller: Caller = SYSTEM


class RecordsCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.records``."""

    kind: str
    names: list[str]


class SetRecordCall(msgspec.Struct, frozen=True, array_like=True):
    """See ``Engine.set_record``."""

    kind: str
    name: str
    after: Record | None
    attribution: Attribution
    expected: Record | None
    caller: Caller = SYSTEM


class Verb(Generic[Q, A]):
    """One verb: how its call and its answer are written and read."""

    def __init__(self, name: str, call: type[Q], answer: type[A]) -> None:
        self.name = name
        self.path = PREFIX + name
        self._calls = msgspec.msgpack.Decoder(call)
        self._answers = msgspec.msgpack.Decoder(answer)

    def write_call(self, call: Q) -> bytes:
        """Return the call as bytes, or raise ``InvalidInput`` if it cannot be encoded."""
        try:
            return _ENCODER.encode(call)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidInput(self.name, f"the call cannot be sent ({error})") from None

    def read_call(self, body: bytes) -> Q:
        """Return the call, or raise one of ``UNREADABLE``."""
        return self._calls.decode(body)

    def write_answer(self, answer: A) -> bytes:
        """Return the answer as bytes."""
        return _ENCODER.encode(answer)

    def read_answer(self, body: bytes) -> A:
        """Return the answer, or raise one of ``UNREADABLE``."""
        return self._answers.decode(body)


ENQUEUE = Verb("enqueue", EnqueueCall, list[Receipt])
CLAIM = Verb("claim", ClaimCall, ClaimAnswer)
SETTLE = Verb("settle", SettleCall, list[LostLease | None])
EXTEND = Verb("extend", ExtendCall, list[ExtendAnswer])
LEASES = Verb("leases", LeasesCall, list[ExtendAnswer])
RECLAIM = Verb("reclaim", ReclaimCall, Reclaim)
GET = Verb("get", GetCall, list[Job | None])
COUNTS = Verb("counts", CountsCall, dict[str, Counts])
QUEUES = Verb("queues", CountsCall, list[str])
VALIDATE = Verb("validate", Empty, list[str])
FIND = Verb("find", FindCall, Page)
COUNT = Verb("count", CountCall, Count)
GROUPS = Verb("groups", GroupsCall, list[FailureGroup])
HISTORY = Verb("history", GetCall, list[History | None])
EXPLAIN = Verb("explain", GetCall, list[Explanation | None])
OPERATE = Verb("operate", OperateCall, AdminResult)
EDIT = Verb("edit", EditCall, Job)
POLICIES = Verb("policies", Empty, dict[str, QueuePolicy])
SET_POLICY = Verb("set_policy", SetPolicyCall, Empty)
FLAGS = Verb("flags", Empty, dict[str, bool])
SET_FLAG = Verb("set_flag", SetFlagCall, Empty)
SCHEDULES = Verb("schedules", Empty, dict[str, ScheduleState])
SET_SCHEDULE = Verb("set_schedule", SetScheduleCall, Empty)
OUTAGES = Verb("outages", OutagesCall, list[Outage])
REPORT_OUTAGE = Verb("report_outage", ReportOutageCall, OutageUpdate)
SET_OUTAGE = Verb("set_outage", SetOutageCall, Outage)
NOW = Verb("now", Empty, int)
START_OPERATION = Verb("start_operation", StartOperationCall, Operation)
ADVANCE_OPERATION = Verb("advance_operation", OperationCall, OperationStep)
OPERATIONS = Verb("operations", OperationsCall, list[Operation])
OPERATION = Verb("operation", OperationCall, Operation)
CHANGE_OPERATION = Verb("change_operation", ChangeOperationCall, Operation)
SET_GROUP = Verb("set_group", SetGroupCall, list[FailureGroup])
ANNOUNCE = Verb("announce", AnnounceCall, list[SentCommand])
DEPART = Verb("depart", DepartCall, Empty)
WORKERS = Verb("workers", WorkersCall, list[WorkerEntry])
COMMAND = Verb("command", CommandCall, str)
ANSWERS = Verb("answers", AnswersCall, list[CommandAnswer])
TAKE_SAMPLE = Verb("take_sample", TakeSampleCall, float)
SAMPLES = Verb("samples", SamplesCall, dict[str, list[SamplePoint]])
APPEND = Verb("append", AppendCall, list[EventReceipt])
GET_EVENTS = Verb("get_events", GetCall, list[Event | None])
FIND_EVENTS = Verb("find_events", FindEventsCall, EventPage)
COUNT_EVENTS = Verb("count_events", CountEventsCall, int)
SUBSCRIPTIONS = Verb("subscriptions", Empty, dict[str, Subscription])
SET_SUBSCRIPTION = Verb("set_subscription", SetSubscriptionCall, list[Subscription])
PROJECTIONS = Verb("projections", Empty, dict[str, ProjectionState])
SET_PROJECTION = Verb("set_projection", SetProjectionCall, Empty)
CHANGES = Verb("changes", ChangesCall, ChangeMarks)
RECORDS = Verb("records", RecordsCall, list[Record])
SET_RECORD = Verb("set_record", SetRecordCall, Empty)
AUDIT = Verb("audit", AuditCall, AuditHead)
DUMP = Verb("dump", DumpCall, DumpAnswer)
AUDITED = Verb("audited", AuditedCall, list[AuditRecord])


class BatchedCall(msgspec.Struct, frozen=True, array_like=True):
    """One of several calls in one request."""

    verb: str
    body: bytes


class BatchedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """One of several answers: the same as to a single call."""

    status: int
    body: bytes


class ErrorMessage(msgspec.Struct, frozen=True, array_like=True):
    """An error that the engine raised: its code, its message, and its attributes."""

    code: str
    message: str
    facts: dict[str, int | str | list[str]]


class RequestProblem(msgspec.Struct, frozen=True):
    """What is wrong with a request, in the form of RFC 9457."""

    title: str
    status: int
    detail: str
    versions: list[int] = []
    """The versions of this protocol that the owner has, if that is the problem."""


def write_calls(calls: Sequence[BatchedCall]) -> bytes:
    """Return the body of a request with several calls."""
    return _ENCODER.encode(calls)


def read_calls(body: bytes) -> list[BatchedCall]:
    """Return the calls, or raise one of ``UNREADABLE``."""
    return _CALLS.decode(body)


def write_answers(answers: Sequence[BatchedAnswer]) -> bytes:
    """Return the answers to several calls, in their order."""
    return _ENCODER.encode(answers)


def read_answers(body: bytes) -> list[BatchedAnswer]:
    """Return the answers, or raise one of ``UNREADABLE``."""
    return _ANSWERS.decode(body)


def write_error(error: HoldfastError) -> bytes:
    """Return an error as bytes."""
    facts = {name: fact for name, fact in vars(error).items() if _is_fact(fact)}
    return _ENCODER.encode(ErrorMessage(error.code, str(error), facts))


def read_error(body: bytes) -> HoldfastError:
    """Return the error that was written; a plain ``HoldfastError`` if its code is unknown."""
    problem = _PROBLEMS.decode(body)
    kind = _KINDS.get(problem.code, HoldfastError)
    error = kind.__new__(kind, problem.message)
    # Not by its constructor: message and facts are the owner's.
    vars(error).update(problem.facts)
    return error


def extend_answer(answer: Renewal | LeaseLost) -> ExtendAnswer:
    """Return the message for this."""
    if isinstance(answer, LeaseLost):
        return ExtendAnswer(0, lost=LostLease(answer.job_id, answer.token))
    return ExtendAnswer(answer.lease_until_us, answer.stop_requested)


def renewals(answers: list[ExtendAnswer]) -> list[Renewal | LeaseLost]:
    """Return what these messages say."""
    return [
        Renewal(answer.lease_until_us, answer.stop_requested)
        if answer.lost is None
        else LeaseLost(answer.lost.job_id, answer.lost.token)
        for answer in answers
    ]


def lost_lease(answer: LeaseLost | None) -> LostLease | None:
    """Return the message for this."""
    return None if answer is None else LostLease(answer.job_id, answer.token)


def lease_lost(answer: LostLease | None) -> LeaseLost | None:
    """Return the error in an answer."""
    return None if answer is None else LeaseLost(answer.job_id, answer.token)


def claim_answer(claim: Claim) -> ClaimAnswer:
    """Return the message for a claim."""
    return ClaimAnswer(claim.jobs, [lost_lease(answer) for answer in claim.settled])


def _family(kind: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)


def _is_fact(fact: object) -> bool:
    if isinstance(fact, list):
        return all(isinstance(item, str) for item in fact)
    return isinstance(fact, int | str)


_KINDS = {kind.code: kind for kind in _family(HoldfastError)}
_ENCODER = msgspec.msgpack.Encoder()
_CALLS = msgspec.msgpack.Decoder(list[BatchedCall])
_ANSWERS = msgspec.msgpack.Decoder(list[BatchedAnswer])
_PROBLEMS = msgspec.msgpack.Decoder(ErrorMessage)
