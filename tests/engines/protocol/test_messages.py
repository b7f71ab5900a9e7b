"""What goes over the wire comes out the same at the other end."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.engines.contract import AdminResult, Admission, Claim, Counts, Receipt, Reclaim
from holdfast.engines.dump.format import DumpedJob, DumpedPolicy, DumpHead
from holdfast.engines.protocol import messages
from holdfast.model import errors
from holdfast.model.access import Caller
from holdfast.model.actions import (
    ArchiveJobs,
    CancelJobs,
    ConfirmJobs,
    NoteJobs,
    PurgeJobs,
    ReplayJobs,
    RestoreJobs,
)
from holdfast.model.audit import Attribution, AuditEntry, AuditHead, chain
from holdfast.model.change_feed import ChangeMarks, TopicMark
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import HoldfastError, LeaseLost
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.failure_groups import group_dead_jobs, life_of
from holdfast.model.group_life import GroupChange, GroupVerb
from holdfast.model.history import AttemptRecord, History, Note, NoteKind
from holdfast.model.job import Edit, Job, NewJob, State
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
OPERATION = Attribution("ops", "because", (ENTRY,))
POLICY = QueuePolicy(paused=True, rate=Rate(10, 60.0), max_per_key=2)
SCHEDULE = ScheduleState("* * * * *", "UTC", "t", "mail", paused=True)
ATTEMPT = AttemptRecord(1, 7, "w", 3, 5, "retry", Failure.of("timeout", "slow"))

GROUPS = group_dead_jobs([replace(JOB, failure=Failure.of("timeout", "slow 7"))], 90)
CHANGE = GroupChange(GroupVerb.MUTE, until_us=9)

ERRORS = [
    errors.InvalidInput("queue", "is empty"),
    errors.PayloadInvalid("payload", "not a JSON object"),
    errors.TooLarge("payload", 300_000, 262_144, "store it elsewhere"),
    errors.AccessDenied("tenant", "acme"),
    errors.Forbidden("flag.set", ["viewer"]),
    errors.UnknownKey("ci", ["other"]),
    errors.StoreNotOurs("data", "eve (uid 7)", "and is not yours", "chown ann data"),
    errors.DuplicateId([f"job{number}" for number in range(7)]),
    errors.LeaseLost("a", 2**62),
    errors.IllegalTransition("a", "dead", "claim"),
    errors.StorageError("the disk is on fire"),
    errors.UnknownGroup("g-0123456789"),
    errors.UnknownPage("timout", ["timeout"]),
    errors.PlanOutdated(7, "9"),
    errors.StorageFull("no room"),
    errors.DurabilityLost("a sync failed"),
    errors.CorruptLog("1.log", 512, 9, "bad checksum"),
    errors.UnknownFormat("1.log", "version", 9, 1),
    errors.DirectoryInUse("owned by another"),
    errors.EngineClosed("closed"),
    errors.InvariantViolation("a bug"),
    errors.Unavailable("nobody there"),
    errors.NoOwner("start one"),
    errors.KeyRefused("make another"),
    errors.UnknownTask("x", ["y", "z"]),
    errors.UnknownDependency("a", "b"),
    errors.StaleVersion("a", 1, 2),
    errors.ChangedMeanwhile("queue", "mail"),
    errors.WorkerIdInUse("a", "east", 7),
    errors.CorruptHistory("cold.sqlite", "dead", "7", "its checksum is wrong"),
    errors.HistoryMissing("cold.sqlite", 3, 7),
    errors.CorruptDump("a.dump", "it ends too early"),
    errors.AuditAltered(7, "its checksum is wrong"),
    errors.StoreMoved("var", "postgresql://db/jobs", " on 2026-11-17", "var/MOVED"),
    errors.JobNotFound("a"),
    errors.UnknownSchedule("nightly", ["hourly"]),
    errors.UnknownOperation("op-1"),
    errors.UnknownEventType("book.opend", ["book.opened"]),
    errors.EventInvalid("book.opened", "page", "is required"),
    errors.EventConflict("018f0000-0000-7000-8000-000000000001"),
    errors.CorruptEvents("events.sqlite", "7", "its checksum is wrong"),
    errors.EventsMissing("events.sqlite", 3, 7),
    errors.EventNotFound("018f0000-0000-7000-8000-000000000001"),
    errors.UnknownProjection("cronicle", ["chronicle"]),
    errors.RebuildRunning("chronicle", "rb-1", "filling"),
    errors.PlanOutdated(1_204, "980"),
    errors.UnknownQueue("mial", ["mail"]),
    errors.JobFailed("a", "dead", "timeout", "took too long"),
    errors.NoResult("a", "its result is too large"),
    errors.ResultTimeout("not yet"),
    errors.WrongLoop("elsewhere"),
    errors.HoldfastError("something"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_what_it_was(error: HoldfastError) -> None:
    back = messages.read_error(messages.write_error(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.code == error.code
    assert vars(back) == vars(error), "its facts"


def test_every_error_that_there_is_can_travel() -> None:
    assert {type(error) for error in ERRORS} == set(messages._KINDS.values())


def test_an_error_of_a_code_that_is_not_known_here_is_a_plain_one() -> None:
    problem = messages.ErrorMessage("from_the_future", "the flux is low", {"flux": 7})
    back = messages.read_error(msgspec.msgpack.encode(problem))
    assert type(back) is HoldfastError
    assert str(back) == "the flux is low"


def test_facts_that_no_message_holds_are_left_out() -> None:
    error = errors.StorageError("full")
    vars(error).update(where=object(), parts=[1, 2], names=["a"], size=7)
    assert vars(messages.read_error(messages.write_error(error))) == {"names": ["a"], "size": 7}


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        (messages.ENQUEUE, messages.EnqueueCall([NewJob(task="t", payload=b"{}")], CALLER, "skip")),
        (messages.ENQUEUE, messages.EnqueueCall([])),
        (
            messages.CLAIM,
            messages.ClaimCall(
                ["a"], "w", ["t"], 5, 30.0, 1.5, [Outcome(OutcomeKind.RELEASE, "a", 2**62)], CALLER
            ),
        ),
        (messages.CLAIM, messages.ClaimCall([], "w", None, 1, 30.0, 0.0, [])),
        (
            messages.SETTLE,
            messages.SettleCall(
                [
                    Outcome(OutcomeKind.DEAD, "a", 7, "acme", 1.5, Failure.of("timeout", "slow")),
                    Outcome(OutcomeKind.COMPLETED, "b", 8, result=b"7"),
                ],
                CALLER,
            ),
        ),
        (messages.EXTEND, messages.ExtendCall([messages.LeaseRef("acme", "a", 7)], 60.0, CALLER)),
        (messages.RECLAIM, messages.ReclaimCall(9, [messages.JobName("acme", "a")], CALLER)),
        (messages.GET, messages.GetCall(["a", "ü"], "acme", CALLER)),
        (messages.COUNTS, messages.CountsCall(CALLER)),
        (messages.VALIDATE, messages.Empty()),
        (messages.FIND, messages.FindCall(WANTED, "abc", 7, True, CALLER)),
        (messages.GROUPS, messages.GroupsCall(WANTED, CALLER)),
        (messages.HISTORY, messages.GetCall(["a"], "acme", CALLER)),
        *(
            (messages.OPERATE, messages.OperateCall(action, WANTED, OPERATION, 9, CALLER))
            for action in (
                *(ReplayJobs("run", "it"), NoteJobs("odd"), ArchiveJobs(), RestoreJobs()),
                *(CancelJobs(), PurgeJobs(), ConfirmJobs()),
            )
        ),
        (
            messages.EDIT,
            messages.EditCall(messages.JobName("acme", "a"), Edit(payload=b"{}"), OPERATION, 3),
        ),
        (messages.SET_POLICY, messages.SetPolicyCall("mail", POLICY, OPERATION, CALLER)),
        (messages.SET_POLICY, messages.SetPolicyCall("mail", None, OPERATION)),
        (messages.SET_FLAG, messages.SetFlagCall("f", None, OPERATION)),
        (messages.SET_SCHEDULE, messages.SetScheduleCall("s", SCHEDULE, OPERATION)),
        (messages.SET_GROUP, messages.SetGroupCall("g-1", CHANGE, OPERATION, CALLER)),
        (messages.AUDIT, messages.AuditCall([ENTRY], CALLER)),
        (messages.AUDITED, messages.AuditedCall(7, 9)),
        (messages.DUMP, messages.DumpCall("session")),
    ],
)
def test_a_call_arrives_as_it_was_made(verb, call):
    assert verb.read_call(verb.write_call(call)) == call


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        (messages.ENQUEUE, [Receipt("a"), Receipt("b", Admission.EXISTING)]),
        (messages.CLAIM, messages.ClaimAnswer([JOB], [None, messages.LostLease("a", 2**62)])),
        (messages.SETTLE, [None, messages.LostLease("a", 7)]),
        (
            messages.EXTEND,
            [
                messages.ExtendAnswer(7, True),
                messages.ExtendAnswer(0, lost=messages.LostLease("a", 7)),
            ],
        ),
        (messages.RECLAIM, Reclaim([JOB], [JOB])),
        (messages.GET, [JOB, None]),
        (messages.COUNTS, {"mail": Counts(pending=7)}),
        (messages.VALIDATE, ["something is wrong"]),
        (messages.FIND, Page([JOB], "abc")),
        (messages.GROUPS, GROUPS),
        (messages.SET_GROUP, [replace(GROUPS[0], life=life_of(GROUPS[0]))]),
        (
            messages.HISTORY,
            [None, History(JOB, [ATTEMPT], [Note(NoteKind.EDIT, 7, "x", "y", b"{}")])],
        ),
        (messages.OPERATE, AdminResult([JOB], 3, more=True)),
        (messages.EDIT, JOB),
        (messages.POLICIES, {"mail": POLICY}),
        (messages.FLAGS, {"f": True}),
        (messages.CHANGES, ChangeMarks("f", [TopicMark("a", "queue:mail", "7")])),
        (messages.SCHEDULES, {"s": SCHEDULE}),
        (messages.AUDIT, AuditHead(7, "abc")),
        (messages.AUDITED, [chain(AuditHead(), ENTRY, 7)]),
        (
            messages.DUMP,
            messages.DumpAnswer(
                "s", [DumpHead("journal", 1, 2, 3), DumpedJob(JOB), DumpedPolicy("mail", POLICY)]
            ),
        ),
    ],
)
def test_an_answer_arrives_as_it_was_given(verb, answer):
    assert verb.read_answer(verb.write_answer(answer)) == answer


def test_a_lost_lease_inside_an_answer_arrives_whole() -> None:
    answer = messages.claim_answer(Claim([], [None, LeaseLost("a", 7)]))
    nothing, lost = (messages.lease_lost(each) for each in answer.settled)
    assert nothing is None
    assert isinstance(lost, LeaseLost)
    assert (lost.job_id, lost.token) == ("a", 7)


def test_the_version_is_in_every_path() -> None:
    verbs: list[messages.Verb[Any, Any]] = [
        messages.ENQUEUE, messages.CLAIM, messages.SETTLE, messages.EXTEND,
        messages.RECLAIM, messages.GET, messages.COUNTS, messages.VALIDATE,
    ]  # fmt: skip
    assert [verb.path for verb in verbs] == [f"/engine/v1/{verb.name}" for verb in verbs]
    assert messages.CALLS_PATH == "/engine/v1/calls"
