"""Every verb × every role: what the table grants is forwarded, everything else is refused."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

import pytest
from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.engines.forwarding import ForwardingEngine
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.access import Caller
from holdfast.model.actions import (
    ArchiveJobs,
    CancelJobs,
    ConfirmJobs,
    EditJobs,
    NoteJobs,
    PurgeJobs,
    ReplayJobs,
    RestoreJobs,
    RetargetJobs,
)
from holdfast.model.audit import Attribution, AuditEntry, AuditFilter
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import AccessDenied, Forbidden, HoldfastError, InvalidInput
from holdfast.model.event import NewEvent
from holdfast.model.event_search import EventFilter
from holdfast.model.filter_grammar import compile_filter
from holdfast.model.fleet import WorkerCommand, WorkerProcess
from holdfast.model.group_life import GroupChange, GroupVerb
from holdfast.model.job import Edit, NewJob
from holdfast.model.operation import NewOperation, OperationChange
from holdfast.model.permissions import Permission, Role, granted, roles_of
from holdfast.model.policy import QueuePolicy
from holdfast.model.principal import Principal
from holdfast.model.projection import ProjectionState
from holdfast.model.record import Record
from holdfast.model.search import Filter
from holdfast.operations.access.denials import DenialLog
from holdfast.operations.access.engine import AuthorizedEngine
from holdfast.projections.chronicle import ENTRIES
from holdfast.testing import VirtualClock

WHO = Attribution("ann", "a test")
P = Permission
Call = Callable[[Engine], Awaitable[object]]


class Reached(HoldfastError):
    """The engine below was called."""


class Recorder(ForwardingEngine):
    """Raises ``Reached`` with what any verb was called with."""

    def __getattribute__(self, name: str) -> object:
        """Return a verb that says that it was reached."""
        if name.startswith("_") or name in ("engine", "capabilities", "audit", "denied"):
            return super().__getattribute__(name)

        async def reached(*_args: object, **named: object) -> None:
            raise Reached(str(named.get("caller")))

        return reached

    async def audit(  # type: ignore[override]
        self, entries: list[AuditEntry], *, caller: Caller | None = None
    ) -> None:
        """Keep denials, and nothing else."""
        if caller is not None:
            raise Reached(str(caller))


def event(**fields: object) -> NewEvent:
    """Return an event."""
    made = NewEvent(
        event_type="e", version=1, entity_type="book", entity_id="1", actor_type="user",
        actor_id="ann", payload=b"{}",
    )  # fmt: skip
    return replace(made, **fields)


EVENT = "01890a5d-ac96-774b-bcce-b302099a8057"
PAUSED = QueuePolicy(paused=True)
LIMITED = QueuePolicy(max_in_flight=1)
SEEN_BY_WORKERS = ("get", "queues", "flags", "outages", "workers")
"""What runs on another machine with the role of a worker has to see these."""
CALLS: Mapping[str, tuple[Permission, Call]] = {
    "enqueue": (P.JOB_CREATE, lambda e: e.enqueue([NewJob(task="t")])),
    "claim": (P.JOB_CLAIM, lambda e: e.claim(queues=["q"], worker="w")),
    "settle": (P.JOB_CLAIM, lambda e: e.settle([])),
    "extend": (P.JOB_CLAIM, lambda e: e.extend([], lease_seconds=1)),
    "leases": (P.JOB_CLAIM, lambda e: e.leases([])),
    "reclaim": (P.JOB_CLAIM, lambda e: e.reclaim()),
    "reclaim forced": (P.JOB_RECLAIM, lambda e: e.reclaim(forced=[Filter()])),  # type: ignore[list-item]
    "get": (P.JOB_READ, lambda e: e.get(["a"])),
    "find": (P.JOB_READ, lambda e: e.find()),
    "count": (P.JOB_READ, lambda e: e.count()),
    "counts": (P.COUNTS_READ, lambda e: e.counts()),
    "queues": (P.COUNTS_READ, lambda e: e.queues()),
    "groups": (P.JOB_READ, lambda e: e.groups()),
    "history": (P.JOB_READ, lambda e: e.history(["a"])),
    "explain": (P.JOB_READ, lambda e: e.explain(["a"])),
    "validate": (P.JOB_READ, lambda e: e.validate()),
    "replay": (P.JOB_REPLAY, lambda e: e.operate(ReplayJobs(), Filter(), WHO)),
    "replay fixed": (P.JOB_REPLAY_FIXED, lambda e: e.operate(ReplayJobs(fixed="x"), Filter(), WHO)),
    "replay many": (P.JOB_BULK, lambda e: e.operate(ReplayJobs(), Filter(), WHO, limit=1_001)),
    "archive": (P.JOB_ARCHIVE, lambda e: e.operate(ArchiveJobs(), Filter(), WHO)),
    "restore": (P.JOB_ARCHIVE, lambda e: e.operate(RestoreJobs(), Filter(), WHO)),
    "cancel": (P.JOB_CANCEL, lambda e: e.operate(CancelJobs(), Filter(), WHO)),
    "purge": (P.JOB_PURGE, lambda e: e.operate(PurgeJobs(), Filter(), WHO)),
    "confirm": (P.JOB_CONFIRM, lambda e: e.operate(ConfirmJobs(), Filter(), WHO)),
    "note": (P.JOB_NOTE, lambda e: e.operate(NoteJobs("x"), Filter(), WHO)),
    "edit many": (P.JOB_EDIT, lambda e: e.operate(EditJobs(), Filter(), WHO)),
    "retarget": (P.JOB_EDIT, lambda e: e.operate(RetargetJobs("t"), Filter(), WHO)),
    "operate": (P.JOB_CANCEL, lambda e: e.operate(CancelJobs(), Filter(), WHO)),
    "edit": (P.JOB_EDIT, lambda e: e.edit(NewJob(task="t"), Edit(priority=1), WHO)),  # type: ignore[arg-type]
    "append": (P.EVENT_APPEND, lambda e: e.append([event()])),
    "append a correction": (P.EVENT_CORRECT, lambda e: e.append([event(supersedes="e1")])),
    "get_events": (P.JOB_READ, lambda e: e.get_events(["a"])),
    "find_events": (P.JOB_READ, lambda e: e.find_events(EventFilter())),
    "count_events": (P.JOB_READ, lambda e: e.count_events()),
    "subscriptions": (P.JOB_READ, lambda e: e.subscriptions()),
    "set_subscription": (P.PROJECTION_REBUILD, lambda e: e.set_subscription("s", None, WHO)),
    "projections": (P.JOB_READ, lambda e: e.projections()),
    "set_projection": (
        P.PROJECTION_REBUILD,
        lambda e: e.set_projection(ProjectionState(name="p"), WHO, expected=None),
    ),
    "fanout_settled": (P.JOB_READ, lambda e: e.fanout_settled(1)),
    "policies": (P.JOB_READ, lambda e: e.policies()),
    "set_policy": (P.QUEUE_POLICY, lambda e: e.set_policy("q", LIMITED, WHO)),
    "set_policy, pausing": (
        P.QUEUE_PAUSE,
        lambda e: e.set_policy("q", PAUSED, WHO, expected=QueuePolicy()),
    ),
    "set_policy, pausing and more": (
        P.QUEUE_POLICY,
        lambda e: e.set_policy("q", replace(LIMITED, paused=True), WHO, expected=PAUSED),
    ),
    "flags": (P.JOB_READ, lambda e: e.flags()),
    "set_flag": (P.FLAG_SET, lambda e: e.set_flag("f", WHO, on=True)),
    "records": (P.KEY_MANAGE, lambda e: e.records("key")),
    "set_record": (
        P.KEY_MANAGE,
        lambda e: e.set_record("key", "k", Record("key", "k", "{}"), WHO, expected=None),
    ),
    "schedules": (P.JOB_READ, lambda e: e.schedules()),
    "set_schedule": (
        P.SCHEDULE_SET,
        lambda e: e.set_schedule("s", ScheduleState("* * * * *", "UTC", "t", "q"), WHO),
    ),
    "outages": (P.JOB_READ, lambda e: e.outages()),
    "report_outage": (P.JOB_CLAIM, lambda e: e.report_outage()),
    "set_outage": (P.OUTAGE_SET, lambda e: e.set_outage("d", WHO, on=True)),
    "start_operation": (
        P.JOB_REPLAY,
        lambda e: e.start_operation(
            NewOperation(id="o", action=ReplayJobs(), wanted=Filter(), limit=10), WHO
        ),
    ),
    "start_operation on any number": (
        P.JOB_BULK,
        lambda e: e.start_operation(
            NewOperation(id="o", action=ReplayJobs(), wanted=Filter()), WHO
        ),
    ),
    "advance_operation": (P.JOB_REPLAY, lambda e: e.advance_operation("o")),
    "operations": (P.JOB_READ, lambda e: e.operations()),
    "operation": (P.JOB_READ, lambda e: e.operation("o")),
    "set_group": (P.GROUP_SET, lambda e: e.set_group("g", GroupChange(GroupVerb.MUTE), WHO)),
    "announce": (P.JOB_CLAIM, lambda e: e.announce(cast(WorkerProcess, None), ttl_seconds=1)),
    "depart": (P.JOB_CLAIM, lambda e: e.depart("p")),
    "workers": (P.JOB_READ, lambda e: e.workers()),
    "command": (
        P.WORKER_COMMAND,
        lambda e: e.command(WorkerCommand("drain"), ["p"], WHO, ttl_seconds=1),
    ),
    "reload": (
        P.SETTINGS_RELOAD,
        lambda e: e.command(WorkerCommand("reload"), ["p"], WHO, ttl_seconds=1),
    ),
    "answers": (P.WORKER_COMMAND, lambda e: e.answers("c")),
    "take_sample": (P.JOB_CLAIM, lambda e: e.take_sample()),
    "changes": (P.COUNTS_READ, lambda e: e.changes()),
    "samples": (P.COUNTS_READ, lambda e: e.samples(from_us=0, to_us=1)),
    "audit": (P.KEY_MANAGE, lambda e: e.audit([], caller=Caller())),
    "audited": (P.AUDIT_OWN, lambda e: e.audited()),
}
FREE = {"capabilities", "leases_refused", "now_us", "close", "read_models"}
ELSEWHERE = {"dump", "change_operation"}
"""Tested below."""


def engine_for(*roles: Role, caller: Caller | None = None) -> Engine:
    """Return an engine that says whether it was reached, as somebody with these roles has it."""
    below = Recorder(cast(Engine, None))
    principal = Principal(name="ann", roles=roles, caller=caller or Caller())
    return AuthorizedEngine(cast(Engine, below), principal, DenialLog(cast(Engine, below)))


def test_every_verb_of_the_contract_is_checked_here():
    verbs = {name for name, _ in inspect.getmembers(Engine) if not name.startswith("_")}
    assert verbs - FREE - ELSEWHERE == {name for name in CALLS if name in verbs}
    own = {name for name in vars(AuthorizedEngine) if not name.startswith("_")}
    assert own == verbs, "a verb is missing, or forwarded without a check"


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("name", CALLS)
async def test_a_verb_is_reached_exactly_with_a_role_that_grants_it(name, role):
    permission, call = CALLS[name]
    allowed = permission in granted([role]) or (
        name in SEEN_BY_WORKERS and P.JOB_CLAIM in granted([role])
    )
    if permission is P.JOB_BULK:
        allowed = allowed and P.JOB_REPLAY in granted([role])
    if name == "append a correction":
        allowed = allowed and P.EVENT_APPEND in granted([role])
    with pytest.raises(Reached if allowed else Forbidden):
        await call(engine_for(role))


@pytest.mark.parametrize("name", CALLS)
async def test_without_a_role_nothing_is_allowed(name):
    with pytest.raises(Forbidden):
        await CALLS[name][1](engine_for())


@pytest.mark.parametrize("name", CALLS)
async def test_a_limited_reach_goes_below_with_every_verb_or_the_verb_is_refused(name):
    mine = Caller("acme", ("library:42",))
    with pytest.raises((Reached, AccessDenied)) as found:
        await CALLS[name][1](engine_for(Role.ADMIN, Role.WORKER, caller=mine))
    if isinstance(found.value, Reached) and name not in OF_NO_TENANT:
        assert str(found.value) == str(mine)


OF_NO_TENANT = {"subscriptions", "projections", "fanout_settled", "policies", "audited"}
"""Names of projections are seen by all; ``policies`` and the audit are filtered."""


@pytest.mark.parametrize(
    ("asked", "reached"),
    [
        (Caller(), Caller("acme", ("a",))),
        (Caller("acme"), Caller("acme", ("a",))),
        (Caller("acme", ("a/b",)), Caller("acme", ("a/b",))),
        (Caller("acme", ("b",)), None),
        (Caller("acme", ("a", "b")), None),
        (Caller("other"), None),
        (Caller("other", ("a",)), None),
        (Caller(None, ("b",)), None),
        (Caller(None, ("a/b",)), Caller("acme", ("a/b",))),
    ],
)
async def test_a_call_can_narrow_the_reach_and_never_widen_it(asked, reached):
    engine = engine_for(Role.VIEWER, caller=Caller("acme", ("a",)))
    with pytest.raises(AccessDenied if reached is None else Reached) as found:
        await engine.find(caller=asked)
    if reached is not None:
        assert str(found.value) == str(reached)


async def opened(*roles: Role, caller: Caller | None = None) -> tuple[MemoryEngine, Engine]:
    """Return a store, and the same as somebody with these roles has it."""
    below = MemoryEngine(clock=VirtualClock())
    principal = Principal(name="ann", key_id="k1", roles=roles, caller=caller or Caller())
    return below, AuthorizedEngine(below, principal, DenialLog(below, lambda: 0.0))


async def test_payloads_are_left_out_unless_they_may_be_seen():
    below, viewer = await opened(Role.VIEWER)
    responder = AuthorizedEngine(
        below, Principal(name="bob", roles=(Role.RESPONDER,)), DenialLog(below)
    )
    await below.enqueue([NewJob(task="t", payload={"card": "4111"}, id="a")])
    await below.append([event(id=EVENT, payload=b'{"card":"4111"}', after=b'{"card":"4111"}')])
    (job,) = await below.get(["a"])
    assert job is not None
    for payload in (b"{}", b'{"card":"4111"}'):  # the note on the second one has the first one
        await below.edit(job, Edit(payload=payload), Attribution("bob", "a typo"))
    for engine, seen in ((viewer, False), (responder, True)):
        answers = [
            await engine.get(["a"]),
            await engine.find(),
            await engine.history(["a"]),
            await engine.explain(["a"]),
            await engine.get_events([EVENT]),
            await engine.find_events(),
        ]
        assert [b"4111" in repr(one).encode() for one in answers] == [seen] * 6


@pytest.mark.parametrize("text", ["payload.card=4111", "-payload.card=4111"])
async def test_a_filter_by_payload_does_not_tell_what_may_not_be_seen(text):
    below, viewer = await opened(Role.VIEWER)
    await below.enqueue([NewJob(task="t", payload={"card": "4111"}, id="a")])
    wanted = compile_filter(text, 0)
    for call in (viewer.find, viewer.count, viewer.groups):
        with pytest.raises(Forbidden, match=r"payload\.read"):
            await call(wanted)


async def test_a_dump_needs_its_right_and_everything():
    _below, viewer = await opened(Role.VIEWER)
    with pytest.raises(Forbidden):
        viewer.dump()
    _below, admin = await opened(Role.ADMIN, caller=Caller("acme"))
    with pytest.raises(AccessDenied):
        admin.dump()


async def test_who_corrects_an_event_has_it_entered_into_the_audit_of_their_tenant():
    below, responder = await opened(Role.RESPONDER, caller=Caller("acme"))
    mine = AuditEntry("event.correct", "event", "e", "ann", tenant="acme")
    await responder.audit([mine])
    for entry in (replace(mine, tenant="other"), replace(mine, tenant="")):
        with pytest.raises(AccessDenied):
            await responder.audit([entry])
    with pytest.raises(Forbidden):
        await responder.audit([mine, replace(mine, action="key.create")])
    assert [one.entry for one in await below.audited()][:1] == [mine]
    assert len([one for one in await below.audited() if one.entry.user_id == "ann"]) == 2


async def test_who_may_not_start_an_operation_may_not_change_it():
    below, viewer = await opened(Role.VIEWER)
    new = NewOperation(id="op-1", action=ReplayJobs(), wanted=Filter())
    await below.start_operation(new, WHO)
    with pytest.raises(Forbidden):
        await viewer.change_operation("op-1", OperationChange(), WHO)


async def test_read_models_are_confined_and_changed_by_few():
    _below, viewer = await opened(Role.VIEWER)
    with pytest.raises(Forbidden):
        await viewer.read_models.create(ENTRIES, 1)
    _below, admin = await opened(Role.ADMIN, caller=Caller("acme"))
    with pytest.raises(AccessDenied):
        await admin.read_models.drop(ENTRIES, 1)


@pytest.mark.parametrize(
    ("role", "caller", "seen"),
    [
        (Role.AUDITOR, Caller(), ["ann/acme", "bob/acme", "ann/other", "ann/"]),
        (Role.AUDITOR, Caller("acme"), ["ann/acme", "bob/acme"]),
        (Role.AUDITOR, Caller("acme", ("a",)), ["ann/acme"]),
        (Role.OPERATOR, Caller(), ["ann/acme", "ann/other", "ann/"]),
        (Role.OPERATOR, Caller("acme"), ["ann/acme"]),
    ],
)
async def test_the_audit_shows_ones_own_acts_or_those_of_ones_tenant(role, caller, seen):
    below, engine = await opened(role, caller=caller)
    mine = [("ann", "acme"), ("bob", "acme"), ("ann", "other"), ("ann", "")]
    await below.audit([AuditEntry("x", "job", "j", by, tenant=tenant) for by, tenant in mine])
    found = await engine.audited()
    assert [f"{one.entry.user_id}/{one.entry.tenant}" for one in found] == seen
    for wanted in (AuditFilter(tenant="other"), AuditFilter(by=("bob",))):
        asked = await engine.audited(wanted)
        assert asked == [one for one in found if wanted.matches(one)]


async def test_denials_are_audited_once_a_minute_for_each_permission():
    now = 0.0
    below = MemoryEngine(clock=VirtualClock())
    principal = Principal(name="ann", key_id="k1", roles=(Role.VIEWER,), request_id="r1")
    engine = AuthorizedEngine(below, principal, DenialLog(below, lambda: now))
    for _ in range(3):
        with pytest.raises(Forbidden):
            await engine.set_flag("f", WHO, on=True)
    with pytest.raises(Forbidden):
        await engine.operate(CancelJobs(), Filter(), WHO)
    now = 60.0
    with pytest.raises(Forbidden):
        await engine.set_flag("f", WHO, on=True)
    found = [(one.entry.action, one.entry.resource_id) for one in await below.audited()]
    assert found == [
        ("access.denied", "flag.set"),
        ("access.denied", "job.cancel"),
        ("access.denied", "flag.set"),
    ]
    assert await below.flags() == {}


async def test_control_without_the_check_a_viewer_sets_flags(monkeypatch):
    async def unchecked(*_args: object, **_named: object) -> None: ...

    monkeypatch.setattr(AuthorizedEngine, "_require", unchecked)
    with pytest.raises(Reached):
        await test_a_verb_is_reached_exactly_with_a_role_that_grants_it("set_flag", Role.VIEWER)


def test_bad_roles_are_refused():
    assert roles_of(["viewer", "viewer", "worker"]) == (Role.VIEWER, Role.WORKER)
    for bad in ([], ["root"], [""]):
        with pytest.raises(InvalidInput):
            roles_of(bad)
