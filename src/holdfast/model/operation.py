"""Operations: actions on many jobs that are stored, paced, watched and reported.

The members of an operation are fixed when it starts: the jobs that its filter found at one moment,
up to its bound. It goes through them once, in the order of their creation. How far it has come is
stored in the commit that acts on them, so that no member is acted on twice, whatever happens.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from .access import SYSTEM, Caller
from .actions import AnyAction, ConfirmJobs, NoteJobs, ReplayJobs
from .audit import AuditEntry
from .errors import ChangedMeanwhile, InvalidInput
from .job import MICROSECONDS, Job, State, Whole, check_id, check_size
from .policy import Rate
from .search import Filter, Place, place_of

CHUNK = 1_000
"""How many members one commit acts on at most."""
WINDOW = 5_000
"""How many members of a watched operation may be unfinished at once."""
MAX_CANARY = 100
DEFAULT_ABORT_RATIO = 0.2
ABORT_AFTER = 20
"""How many outcomes there must be before a failure ratio counts."""
PLAN_SECONDS = 3_600.0
"""How long a plan may be started."""
CANARY_SECONDS = 600.0
"""How long a canary waits for its outcomes."""
VERIFY_SECONDS = 3_600.0
"""How long an operation waits for the outcomes of its last members."""
MAX_RUNNING = 100
MAX_ENDED = 1_000
"""How many operations that have ended are remembered."""
MOST_FOR_BOUND = 10_000
"""Up to this limit the last member is found out at the start."""

CHANGED = "changed"
"""Why a member was skipped that became something else at the last moment."""

MemberName = tuple[str, str]
"""The tenant and id of a member."""


class Phase(enum.StrEnum):
    """How far an operation has come."""

    CANARY = "canary"
    """It acts on a few members, and waits for their outcomes."""
    RUNNING = "running"
    """It acts on the others."""
    VERIFYING = "verifying"
    """All were acted on; it waits for their outcomes."""
    COMPLETED = "completed"
    ABORTED = "aborted"


class Outcomes(msgspec.Struct, frozen=True, array_like=True):
    """How members ended for the first time after they were replayed."""

    completed: Whole = 0
    failed: Whole = 0
    cancelled: Whole = 0

    @property
    def finished(self) -> int:
        """How many have ended."""
        return self.completed + self.failed + self.cancelled

    def plus(self, state: State, count: int = 1) -> Outcomes:
        """Return these and some that ended in this state."""
        return Outcomes(
            self.completed + count * (state is State.COMPLETED),
            self.failed + count * (state is State.DEAD),
            self.cancelled + count * (state is State.CANCELLED),
        )


class NewOperation(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """An operation as it is asked for.

    ``id`` is the caller's: asking twice with one id starts one operation. ``as_of_us`` is the
    moment of the plan; None is now. Without a rate, a canary and an abort ratio the outcomes are
    counted, but nothing waits for them.
    """

    id: str
    action: AnyAction
    wanted: Filter
    as_of_us: Whole | None = None
    limit: Whole | None = None
    rate: Rate | None = None
    canary: Whole = 0
    canary_seconds: float = CANARY_SECONDS
    abort_ratio: float | None = None
    matched: Whole | None = None
    """How many jobs the plan counted, if it counted all of them."""

    def check(self) -> None:
        """Raise ``InvalidInput`` naming the bad field."""
        check_id(self.id, "operation")
        if isinstance(self.action, ConfirmJobs | NoteJobs):
            raise InvalidInput("action", f"{self.action.name} is not an operation")
        self.action.check()
        self.wanted.check()
        if self.limit is not None:
            check_size("limit", self.limit, 1)
        if self.matched is not None:
            check_size("matched", self.matched, 0)
        if self.rate is not None:
            check_rate(self.rate)
        check_size("canary", self.canary, 0, MAX_CANARY)
        watches = self.canary or self.abort_ratio is not None
        if watches and not isinstance(self.action, ReplayJobs):
            raise InvalidInput("canary", f"{self.action.name} has no outcomes to wait for")
        if type(self.canary_seconds) not in (int, float) or not 0 < self.canary_seconds <= 86_400:
            raise InvalidInput("canary_seconds", f"{self.canary_seconds!r} is not 0 to 86400")
        ratio = self.abort_ratio
        if ratio is not None and (type(ratio) not in (int, float) or not 0 <= ratio <= 1):
            raise InvalidInput("abort_ratio", f"{ratio!r} is not a number from 0 to 1")


class Operation(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """An operation as stored. New fields go at the end: older records lack them."""

    id: str
    action: AnyAction
    wanted: Filter
    """Which jobs are members; the moment is in it."""
    as_of_us: Whole
    by: str
    why: str
    caller: Caller = SYSTEM
    """Whose reach it has."""
    started_at_us: Whole
    limit: Whole | None = None
    rate: Rate | None = None
    canary: Whole = 0
    canary_seconds: float = CANARY_SECONDS
    abort_ratio: float | None = None
    phase: Phase = Phase.RUNNING
    paused: bool = False
    version: Whole = 1
    """Goes up with every change by a person."""
    after: Place | None = None
    """The last member that it looked at."""
    until: Place | None = None
    """The last member, if it has a limit."""
    canaries: tuple[MemberName, ...] = ()
    acted: Whole = 0
    skipped: dict[str, int] = {}
    outcomes: Outcomes = Outcomes()
    spent_until_us: Whole = 0
    """Up to when the rate is used."""
    acted_at_us: Whole = 0
    ended_at_us: Whole = 0
    note: str = ""
    """Why it ended early, or why it waits."""
    matched: Whole | None = None
    """How many jobs its filter found when it started, if they were counted."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.phase in (Phase.COMPLETED, Phase.ABORTED)

    @property
    def state(self) -> str:
        """Its state in a word, for people."""
        return "paused" if self.paused and not self.ended else self.phase.value

    @property
    def watched(self) -> bool:
        """Whether it waits for the outcomes of its members."""
        asked = self.rate is not None or self.canary or self.abort_ratio is not None
        return bool(asked) and isinstance(self.action, ReplayJobs)

    @property
    def outstanding(self) -> int:
        """How many members that it acted on have no outcome yet."""
        if not isinstance(self.action, ReplayJobs):
            return 0
        return max(0, self.acted - self.outcomes.finished)

    def wants(self, job: Job) -> bool:
        """Whether this job is a member that it has not come to yet."""
        return (
            not self.ended
            and self.wanted.matches(job)
            and self.caller.can_access(job.tenant, job.scope)
            and (self.after is None or place_of(job) > self.after)
            and (self.until is None or place_of(job) <= self.until)
            and (job.tenant, job.id) not in self.canaries
        )


class Chunk(msgspec.Struct, frozen=True):
    """What one step of an operation came to."""

    acted: tuple[MemberName, ...] = ()
    skipped: Mapping[str, int] = {}
    after: Place | None = None
    """The last job that it looked at."""
    exhausted: bool = False
    """Whether there are no more members."""


class OperationStep(msgspec.Struct, frozen=True, array_like=True):
    """What came of a step: the operation as it is now, and when the next step may do more."""

    operation: Operation
    acted: int = 0
    next_at_us: int | None = None
    """None: only a change by a person, or an outcome, leads on."""
    cancelled: dict[str, int] = {}
    """How many jobs of each queue it has cancelled; those in flight were asked to stop."""


class OperationChange(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a person changes in an operation that runs; None: no change."""

    paused: bool | None = None
    abort: bool = False
    rate: Rate | None = None
    without_rate: bool = False
    version: int | None = None
    """The version that is changed; None: whatever it is at."""

    def check(self) -> None:
        """Raise ``InvalidInput`` unless it is one change."""
        if self.rate is not None:
            check_rate(self.rate)
        asked = (self.paused is not None, self.abort, self.rate is not None, self.without_rate)
        if sum(asked) != 1:
            raise InvalidInput("change", "give one of pause, resume, abort and a rate")


def check_rate(rate: Rate) -> None:
    """Raise ``InvalidInput`` unless it is a rate that an operation can have."""
    if type(rate) is not Rate:
        raise InvalidInput("rate", f"a {type(rate).__name__} is not a Rate")
    check_size("rate", rate.count, 1, 1_000_000)
    if type(rate.per_seconds) not in (int, float) or not 0 < rate.per_seconds <= 86_400:
        raise InvalidInput("rate", f"{rate.per_seconds!r} is not 0 to 86400 seconds")


# --- start -----------------------------------------------------------------------------------


def members(action: AnyAction, wanted: Filter, as_of_us: int) -> Filter:
    """Return the filter of the members of an operation: as of this moment, and no later ones."""
    asked = frozenset(wanted.states) & action.states if wanted.states else action.states
    if not asked:
        names = ", ".join(sorted(action.states))
        raise InvalidInput("states", f"this is for jobs that are {names}")
    field = "finished_to_us" if all(state.finished for state in asked) else "created_to_us"
    until_us = getattr(wanted, field)
    bound_us = as_of_us + 1 if until_us is None else min(until_us, as_of_us + 1)
    return replace(wanted, states=tuple(sorted(asked)), **{field: bound_us})


def start(
    new: NewOperation, by: str, why: str, caller: Caller, now_us: int, until: Place | None
) -> Operation:
    """Return the operation at its start; ``until`` is its last member, if it has a limit."""
    as_of_us = now_us if new.as_of_us is None else new.as_of_us
    oldest_us = now_us - int(PLAN_SECONDS * MICROSECONDS)
    if not oldest_us <= as_of_us <= now_us:
        problem = "the plan is older than an hour" if as_of_us < oldest_us else "it is not past"
        raise InvalidInput("as_of", f"{problem}: make a new plan")
    action = new.action
    watches = new.rate is not None or new.canary or new.abort_ratio is not None
    if isinstance(action, ReplayJobs):
        action = replace(action, run=new.id)
    return Operation(
        id=new.id,
        action=action,
        wanted=members(action, new.wanted, as_of_us),
        as_of_us=as_of_us,
        by=by,
        why=why,
        caller=caller,
        started_at_us=now_us,
        limit=new.limit,
        rate=new.rate,
        canary=new.canary,
        canary_seconds=new.canary_seconds,
        abort_ratio=DEFAULT_ABORT_RATIO if watches and new.abort_ratio is None else new.abort_ratio,
        phase=Phase.CANARY if new.canary else Phase.RUNNING,
        until=until,
        matched=new.matched,
    )


def same_request(operation: Operation, new: NewOperation) -> bool:
    """Whether an operation came from this request: a repeated one starts nothing."""
    action = new.action
    if isinstance(action, ReplayJobs):
        action = replace(action, run=new.id)
    return (operation.action, operation.limit, operation.rate, operation.canary) == (
        action,
        new.limit,
        new.rate,
        new.canary,
    )


# --- go on -----------------------------------------------------------------------------------


def watch(operation: Operation, now_us: int) -> Operation:
    """Return the operation after what its outcomes and the time lead to, before more is done."""
    if operation.ended:
        return operation
    finished, failed = operation.outcomes.finished, operation.outcomes.failed
    in_canary = operation.phase is Phase.CANARY and bool(operation.canaries)
    enough = finished >= ABORT_AFTER or (in_canary and finished >= operation.acted)
    ratio = operation.abort_ratio
    if ratio is not None and enough and failed > ratio * finished:
        note = f"{failed:,} of {finished:,} failed again, more than {ratio:.0%}"
        return end(operation, Phase.ABORTED, note, now_us)
    if operation.paused:
        return operation
    if in_canary:
        operation = _watch_canary(operation, now_us)
    if operation.phase is Phase.RUNNING and _reached_limit(operation):
        operation = replace(operation, phase=Phase.VERIFYING)  # the canaries were all
    if operation.phase is Phase.VERIFYING:
        waited_us = now_us - operation.acted_at_us
        if not operation.outstanding:
            return end(operation, Phase.COMPLETED, "", now_us)
        if waited_us >= VERIFY_SECONDS * MICROSECONDS:
            note = f"{operation.outstanding:,} have not finished yet"
            return end(operation, Phase.COMPLETED, note, now_us)
    return operation


def _watch_canary(operation: Operation, now_us: int) -> Operation:
    late = now_us >= _canary_deadline_us(operation)
    if operation.outstanding and not late:
        return operation
    if operation.outstanding and not operation.outcomes.finished:
        note = "no canary has finished: see `holdfast jobs explain` for one, then resume or abort"
        return replace(operation, paused=True, note=note)
    return replace(operation, phase=Phase.RUNNING, note="")


def due(operation: Operation, now_us: int) -> int:
    """Return how many members may be acted on now."""
    if operation.ended or operation.paused or operation.phase is Phase.VERIFYING:
        return 0
    most = CHUNK
    if operation.limit is not None:
        most = min(most, operation.limit - operation.acted)
    if operation.phase is Phase.CANARY:
        return 0 if operation.canaries else min(most, operation.canary)
    if operation.watched:
        most = min(most, WINDOW - operation.outstanding)
    rate = operation.rate
    if rate is not None:
        ahead_us = max(operation.spent_until_us - now_us, 0)
        most = min(most, _burst(rate) - -(-ahead_us // rate.interval_us))
    return max(0, most)


def after_chunk(operation: Operation, chunk: Chunk, now_us: int) -> Operation:
    """Return the operation after a chunk."""
    skipped = dict(operation.skipped)
    for reason, count in chunk.skipped.items():
        skipped[reason] = skipped.get(reason, 0) + count
    count = len(chunk.acted)
    spent_us = operation.spent_until_us
    if operation.rate is not None and operation.phase is Phase.RUNNING:
        spent_us = max(spent_us, now_us) + count * operation.rate.interval_us
    acted = operation.acted + count
    after = replace(
        operation,
        acted=acted,
        skipped=skipped,
        spent_until_us=spent_us,
        acted_at_us=now_us if count else operation.acted_at_us or now_us,
    )
    if operation.phase is Phase.CANARY:
        if chunk.acted:
            return replace(after, canaries=chunk.acted)
        return replace(after, phase=Phase.RUNNING)  # none is fit to be a canary
    after = replace(after, after=chunk.after or operation.after)
    if not chunk.exhausted and not _reached_limit(after):
        return after
    if after.watched and after.outstanding:
        return replace(after, phase=Phase.VERIFYING)
    return end(after, Phase.COMPLETED, "", now_us)


def next_at_us(operation: Operation, now_us: int) -> int | None:
    """Return when time alone allows another step; None if only something else does."""
    if operation.ended or operation.paused:
        return None
    if operation.phase is Phase.CANARY and operation.canaries:
        return _canary_deadline_us(operation)
    if operation.phase is Phase.VERIFYING:
        return operation.acted_at_us + int(VERIFY_SECONDS * MICROSECONDS)
    if operation.watched and operation.outstanding >= WINDOW:
        return None
    rate = operation.rate
    if rate is None or operation.phase is Phase.CANARY:
        return now_us
    return max(now_us, operation.spent_until_us - (_burst(rate) - 1) * rate.interval_us)


def change(operation: Operation, asked: OperationChange, by: str, now_us: int) -> Operation:
    """Return the operation after a change by a person; raise ``InvalidInput`` if it has ended.

    Raise ``ChangedMeanwhile`` if it is at another version than was asked for.
    """
    if operation.ended:
        problem = f"operation {operation.id} is {operation.phase}: start another one"
        raise InvalidInput("operation", problem)
    if asked.version is not None and asked.version != operation.version:
        raise ChangedMeanwhile("operation", operation.id)
    changed = replace(operation, version=operation.version + 1)
    if asked.abort:
        return end(changed, Phase.ABORTED, f"aborted by {by}", now_us)
    if asked.paused is not None:
        waits = operation.phase is Phase.CANARY and asked.paused is False and operation.paused
        return replace(
            changed,
            paused=asked.paused,
            note=f"paused by {by}" if asked.paused else "",
            # Whoever resumes a canary that did not run goes on without it.
            phase=Phase.RUNNING if waits and operation.canaries else operation.phase,
        )
    return replace(changed, rate=asked.rate, spent_until_us=0)


def end(operation: Operation, phase: Phase, note: str, now_us: int) -> Operation:
    """Return the operation at its end."""
    return replace(operation, phase=phase, paused=False, note=note, ended_at_us=now_us)


def end_entry(operation: Operation) -> AuditEntry:
    """Return the audit entry of an operation that has ended."""
    outcomes = operation.outcomes
    changes: dict[str, object] = {
        "action": operation.action.name,
        "acted": operation.acted,
        "skipped": operation.skipped,
        "completed": outcomes.completed,
        "failed_again": outcomes.failed,
        "outstanding": operation.outstanding,
        "note": operation.note,
    }
    return AuditEntry(
        f"operation.{operation.phase}",
        "operation",
        operation.id,
        operation.by,
        msgspec.json.encode(changes).decode(),
        operation.why,
        operation.caller.tenant or "",
    )


def ended_member(before: Job | None, after: Job | None) -> tuple[str, State] | None:
    """Return the operation that has to count the end of this job, and how it ended."""
    if before is None or after is None or before.replays is None or not before.replays.run:
        return None
    if before.state.finished or not after.state.finished:
        return None
    return before.replays.run, after.state


def encode(operation: Operation) -> bytes:
    """Return an operation as bytes."""
    return msgspec.msgpack.encode(operation)


def decode(record: bytes) -> Operation:
    """Return the operation in a record."""
    return _OPERATIONS.decode(record)


_OPERATIONS = msgspec.msgpack.Decoder(Operation)


def within_reach(operation: Operation, caller: Caller) -> bool:
    """Whether a caller may see an operation: it has to have the whole reach of it."""
    if caller.unlimited:
        return True
    theirs = operation.caller
    if theirs.tenant is None or theirs.tenant != caller.tenant:
        return False
    return all(caller.can_access(theirs.tenant, scope) for scope in theirs.scopes or ("",))


def older(operations: Iterable[Operation], operation: Operation) -> list[Operation]:
    """Return the operations that started before this one and have not ended, the oldest first."""
    place = operation.started_at_us, operation.id
    found = [one for one in operations if not one.ended and (one.started_at_us, one.id) < place]
    return sorted(found, key=lambda one: (one.started_at_us, one.id))


def taken_by(job: Job, earlier: list[Operation]) -> str:
    """Return why an older operation has this job, or an empty text."""
    return next((f"taken by {one.id}" for one in earlier if one.wants(job)), "")


def _reached_limit(operation: Operation) -> bool:
    return operation.limit is not None and operation.acted >= operation.limit


def _burst(rate: Rate) -> int:
    """How many members one second allows, at least one."""
    return max(1, MICROSECONDS // rate.interval_us)


def _canary_deadline_us(operation: Operation) -> int:
    return operation.acted_at_us + int(operation.canary_seconds * MICROSECONDS)
