"""What goes over the wire comes out the same at the other end."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.engines import wire
from holdfast.engines.base import Admission, Claim, Counts, Operated, Receipt, Reclaim
from holdfast.engines.dump import DumpedJob, DumpedPolicy, DumpHead
from holdfast.model import errors
from holdfast.model.access import Caller
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import HoldfastError, LeaseLost
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.grouping import grouped
from holdfast.model.history import Attempt, History, Note, NoteKind
from holdfast.model.job import Edit, Job, NewJob, State
from holdfast.model.operation import AuditEntry, AuditHead, Operation, chain
from holdfast.model.outcome import Outcome, OutcomeKind
from holdfast.model.policy import QueuePolicy, Rate
from holdfast.model.search import Filter, Page

JOB = Job(
    "a", "acme", "library:42", "mail", "t", b'{"n":1}', 5, 3, 10, 20, 30,
    State.DEAD, 2, 40, "u", 1.5, 2.5, 1, 2**62, "w", 50, 60, 1,
    Failure.of("timeout", "took too long"), 70, b"[1]", 1,
)  # fmt: skip
CALLER = Caller("acme", ("library:42", "library:43"))

WANTED = Filter(states=(State.DEAD,), classes=(FailureClass.UNKNOWN,), created_to_us=7, text="x")
ENTRY = AuditEntry("replay", "job", "a", "ops", '{"n":1}', "why", "acme")
OPERATION = Operation("ops", "because", (ENTRY,))
POLICY = QueuePolicy(paused=True, rate=Rate(10, 60.0), max_per_key=2)
SCHEDULE = ScheduleState("* * * * *", "UTC", "t", "mail", paused=True)
ATTEMPT = Attempt(1, 7, "w", 3, 5, "retry", Failure.of("timeout", "slow"))

ERRORS = [
    errors.InvalidInput("queue", "is empty"),
    errors.PayloadInvalid("payload", "not a JSON object"),
    errors.TooLarge("payload", 300_000, 262_144, "store it elsewhere"),
    errors.AccessDenied("tenant", "acme"),
    errors.DuplicateId([f"job{number}" for number in range(7)]),
    errors.LeaseLost("a", 2**62),
    errors.IllegalTransition("a", "dead", "claim"),
    errors.StorageError("the disk is on fire"),
    errors.StorageFull("no room"),
    errors.DurabilityLost("a sync failed"),
    errors.CorruptLog("1.log", 512, 9, "bad checksum"),
    errors.UnknownFormat("1.log", "version", 9, 1),
    errors.DirectoryInUse("owned by another"),
    errors.EngineClosed("closed"),
    errors.InvariantViolation("a bug"),
    errors.Unavailable("nobody there"),
    errors.NoOwner("start one"),
    errors.UnknownTask("x", ["y", "z"]),
    errors.UnknownDependency("a", "b"),
    errors.StaleVersion("a", 1, 2),
    errors.ChangedMeanwhile("queue", "mail"),
    errors.CorruptHistory("cold.sqlite", "dead", "7", "its checksum is wrong"),
    errors.HistoryMissing("cold.sqlite", 3, 7),
    errors.CorruptDump("a.dump", "it ends too early"),
    errors.JobNotFound("a"),
    errors.UnknownSchedule("nightly", ["hourly"]),
    errors.JobFailed("a", "dead", "timeout", "took too long"),
    errors.ResultTimeout("not yet"),
    errors.WrongLoop("elsewhere"),
    errors.HoldfastError("something"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_what_it_was(error: HoldfastError) -> None:
    back = wire.read_error(wire.write_error(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.code == error.code
    assert vars(back) == vars(error), "its facts"


def test_every_error_that_there_is_can_travel() -> None:
    assert {type(error) for error in ERRORS} == set(wire._KINDS.values())


def test_an_error_of_a_code_that_is_not_known_here_is_a_plain_one() -> None:
    problem = wire.Problem("from_the_future", "the flux is low", {"flux": 7})
    back = wire.read_error(msgspec.msgpack.encode(problem))
    assert type(back) is HoldfastError
    assert str(back) == "the flux is low"


def test_facts_that_no_message_holds_are_left_out() -> None:
    error = errors.StorageError("full")
    vars(error).update(where=object(), parts=[1, 2], names=["a"], size=7)
    assert vars(wire.read_error(wire.write_error(error))) == {"names": ["a"], "size": 7}


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        (wire.ENQUEUE, wire.EnqueueCall([NewJob(task="t", payload=b"{}")], CALLER, "skip")),
        (wire.ENQUEUE, wire.EnqueueCall([])),
        (
            wire.CLAIM,
            wire.ClaimCall(
                ["a"], "w", ["t"], 5, 30.0, 1.5, [Outcome(OutcomeKind.RELEASE, "a", 2**62)], CALLER
            ),
        ),
        (wire.CLAIM, wire.ClaimCall([], "w", None, 1, 30.0, 0.0, [])),
        (
            wire.SETTLE,
            wire.SettleCall(
                [
                    Outcome(OutcomeKind.DEAD, "a", 7, "acme", 1.5, Failure.of("timeout", "slow")),
                    Outcome(OutcomeKind.COMPLETED, "b", 8, result=b"7"),
                ],
                CALLER,
            ),
        ),
        (wire.EXTEND, wire.ExtendCall([wire.Held("acme", "a", 7)], 60.0, CALLER)),
        (wire.RECLAIM, wire.ReclaimCall(9, [wire.Named("acme", "a")], CALLER)),
        (wire.GET, wire.GetCall(["a", "ü"], "acme", CALLER)),
        (wire.COUNTS, wire.CountsCall(CALLER)),
        (wire.VALIDATE, wire.Nothing()),
        (wire.FIND, wire.FindCall(WANTED, "abc", 7, True, CALLER)),
        (wire.GROUPS, wire.GroupsCall(WANTED, CALLER)),
        (wire.HISTORY, wire.GetCall(["a"], "acme", CALLER)),
        (wire.REPLAY, wire.OperateCall(WANTED, OPERATION, 9, "run", "it", caller=CALLER)),
        (wire.NOTE, wire.OperateCall(WANTED, OPERATION, text="odd", caller=CALLER)),
        (wire.EDIT, wire.EditCall(wire.Named("acme", "a"), Edit(payload=b"{}"), OPERATION, 3)),
        (wire.SET_POLICY, wire.SetPolicyCall("mail", POLICY, OPERATION, CALLER)),
        (wire.SET_POLICY, wire.SetPolicyCall("mail", None, OPERATION)),
        (wire.SET_FLAG, wire.SetFlagCall("f", None, OPERATION)),
        (wire.SET_SCHEDULE, wire.SetScheduleCall("s", SCHEDULE, OPERATION)),
        (wire.AUDIT, wire.AuditCall([ENTRY], CALLER)),
        (wire.AUDITED, wire.AuditedCall(7, 9)),
        (wire.DUMP, wire.DumpCall("session")),
    ],
)
def test_a_call_arrives_as_it_was_made(verb, call):
    assert verb.read_call(verb.write_call(call)) == call


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        (wire.ENQUEUE, [Receipt("a"), Receipt("b", Admission.EXISTING)]),
        (wire.CLAIM, wire.ClaimAnswer([JOB], [None, wire.Lost("a", 2**62)])),
        (wire.SETTLE, [None, wire.Lost("a", 7)]),
        (wire.EXTEND, [wire.Extended(7, True), wire.Extended(0, lost=wire.Lost("a", 7))]),
        (wire.RECLAIM, Reclaim([JOB], [JOB])),
        (wire.GET, [JOB, None]),
        (wire.COUNTS, {"mail": Counts(pending=7)}),
        (wire.VALIDATE, ["something is wrong"]),
        (wire.FIND, Page([JOB], "abc")),
        (wire.GROUPS, grouped([replace(JOB, failure=Failure.of("timeout", "slow 7"))])),
        (wire.HISTORY, [None, History(JOB, [ATTEMPT], [Note(NoteKind.EDIT, 7, "x", "y", b"{}")])]),
        (wire.REPLAY, Operated([JOB], 3, more=True)),
        (wire.EDIT, JOB),
        (wire.POLICIES, {"mail": POLICY}),
        (wire.FLAGS, {"f": True}),
        (wire.SCHEDULES, {"s": SCHEDULE}),
        (wire.AUDIT, AuditHead(7, "abc")),
        (wire.AUDITED, [chain(AuditHead(), ENTRY, 7)]),
        (
            wire.DUMP,
            wire.DumpAnswer(
                "s", [DumpHead("journal", 1, 2, 3), DumpedJob(JOB), DumpedPolicy("mail", POLICY)]
            ),
        ),
    ],
)
def test_an_answer_arrives_as_it_was_given(verb, answer):
    assert verb.read_answer(verb.write_answer(answer)) == answer


def test_a_lost_lease_inside_an_answer_arrives_whole() -> None:
    answer = wire.claim_answer(Claim([], [None, LeaseLost("a", 7)]))
    nothing, lost = (wire.lease_lost(each) for each in answer.settled)
    assert nothing is None
    assert isinstance(lost, LeaseLost)
    assert (lost.job_id, lost.token) == ("a", 7)


def test_the_version_is_in_every_path() -> None:
    verbs: list[wire.Verb[Any, Any]] = [
        wire.ENQUEUE, wire.CLAIM, wire.SETTLE, wire.EXTEND,
        wire.RECLAIM, wire.GET, wire.COUNTS, wire.VALIDATE,
    ]  # fmt: skip
    assert [verb.path for verb in verbs] == [f"/engine/v1/{verb.name}" for verb in verbs]
    assert wire.CALLS_PATH == "/engine/v1/calls"
