"""The same actor gets the same answer by HTTP and by what the commands call."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
import pytest

from holdfast.api.problems import refusal_of
from holdfast.model.access import Caller
from holdfast.model.actions import ArchiveJobs, CancelJobs, ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import HoldfastError
from holdfast.model.group_life import GroupChange, GroupVerb
from holdfast.model.job import NewJob
from holdfast.model.operation import NewOperation, OperationChange
from holdfast.model.permissions import Role
from holdfast.model.principal import Principal
from holdfast.model.search import Filter, Order
from holdfast.operations import schedule_views
from holdfast.operations.access.engine import AuthorizedEngine
from holdfast.operations.attribution import Author
from holdfast.operations.bulk import OperationRequest
from holdfast.operations.flag_views import flag_views
from holdfast.operations.operations import Operations

from .rig import Api, opened

WHO = Author("key1", "a test")
WHY = {"why": "a test"}
Command = Callable[[Operations], Awaitable[object]]
Case = tuple[str, str, object, Command]


async def _start(operations: Operations) -> object:
    request = OperationRequest(action=ArchiveJobs(), wanted=Filter(ids=("dead1",)), limit=1_000)
    plan = await operations.bulk.plan(request)
    return (await operations.bulk.start(request, plan, WHO)).action.name


async def _flags(operations: Operations) -> object:
    return flag_views(await operations.engine.flags())


async def _page(operations: Operations) -> object:
    page = await operations.page(Filter(), limit=50, order=Order.NEWEST)
    return [job.id for job in page.jobs]


async def _groups(operations: Operations) -> object:
    return sorted(await operations.groups.list(), key=lambda group: (-group.count, group.id))


def _pause(name: str) -> Command:
    changes: dict[str, object] = {"paused": True}
    return lambda operations: operations.change_policy(name, changes, WHO)


GROUPS = [""]
"""The group of the dead letter: the same in every store."""

# What commands call, and the same over HTTP: method, path, body.
CASES: Sequence[Case] = (
    ("GET", "/jobs", None, _page),
    ("GET", "/failures", None, _groups),
    ("GET", "/flags", None, _flags),
    ("GET", "/outages", None, lambda ops: ops.outages()),
    ("GET", "/workers", None, lambda ops: ops.fleet.workers()),
    ("GET", "/operations", None, lambda ops: ops.bulk.listed(limit=50)),
    ("GET", "/operations/op-1", None, lambda ops: ops.bulk.report("op-1")),
    (
        "POST",
        "/operations/op-1/pause",
        WHY,
        lambda ops: ops.bulk.change("op-1", OperationChange(paused=True), WHO),
    ),
    ("POST", "/operations", {"verb": "archive", "ids": ["dead1"], **WHY}, _start),
    ("POST", "/jobs/dead1/replay", WHY, lambda ops: ops.act(ReplayJobs(), "dead1", "acme", WHO)),
    ("DELETE", "/jobs/j1?why=a+test", None, lambda ops: ops.act(CancelJobs(), "j1", "acme", WHO)),
    ("POST", "/queues/mail/pause", WHY, _pause("mail")),
    ("POST", "/queues/none/pause", WHY, _pause("none")),
    ("PUT", "/flags/f", {"on": True, **WHY}, lambda ops: ops.set_flag("f", WHO, on=True)),
    (
        "POST",
        "/outages/mail/start",
        WHY,
        lambda ops: ops.set_outage("mail", WHO, on=True),
    ),
    (
        "POST",
        "/schedules/nightly/pause",
        WHY,
        lambda ops: ops.change_schedule("nightly", WHO, schedule_views.paused),
    ),
    (
        "PATCH",
        "/failures/{group}",
        {"state": "acknowledged", **WHY},
        lambda ops: ops.groups.change(GROUPS[0], GroupChange(GroupVerb.ACKNOWLEDGE), WHO),
    ),
)
COMPARED = ("/jobs", "/failures", "/flags", "/outages", "/workers", "/operations")
"""Those whose whole answers are compared."""
REACHES = {
    "everything": ((), Caller()),
    "tenant": (("acme",), Caller("acme")),
    "other": (("other",), Caller("other")),
}


async def planted(api: Api) -> None:
    await api.engine.enqueue([NewJob(task="t", id="j1", tenant="acme", queue="mail")])
    await api.dead_letter("dead1")
    GROUPS[0] = (await api.engine.groups())[0].id
    state, who = ScheduleState("0 3 * * *", "UTC", "t", "mail"), Attribution("ann", "a test", ())
    await api.engine.set_schedule("nightly", state, who)
    new = NewOperation(id="op-1", action=ReplayJobs(), wanted=Filter(queues=("none",)))
    await api.engine.start_operation(new, who, caller=Caller("acme"))


async def by_command(case: Case, role: Role, caller: Caller) -> object:
    """Return what a command would get, or the type of the problem."""
    async with opened() as api:
        await planted(api)
        principal = Principal(name="key1", roles=(role,), caller=caller)
        try:
            return await case[3](Operations(api.engine, principal=principal))
        except HoldfastError as error:
            return refusal_of(error).type.uri


async def by_http(case: Case, role: Role, tenants: Sequence[str]) -> object:
    """Return what the API answers, or the type of the problem."""
    async with opened() as api:
        await planted(api)
        key = await api.key(role, tenants=tenants)
        method, path, body, _command = case
        # A job is named within a tenant.
        below = "/tenants/acme" if "/jobs/" in path and not tenants else ""
        path = f"/v2{below}{path.replace('{group}', GROUPS[0])}"
        got = await api.call(key, method, path, body=body)
        if got.is_error:
            return str(got.json()["type"])
        data: object = got.json()["data"]
        return data


@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("case", CASES, ids=[f"{one[0]} {one[1]}" for one in CASES])
async def test_commands_and_http_agree(case, reach):
    tenants, caller = REACHES[reach]
    for role in Role:
        if role is Role.WORKER and case[1] in ("/flags", "/outages"):
            continue  # its process has to know them; the lists of the API are for people
        commanded = await by_command(case, role, caller)
        answered = await by_http(case, role, tenants)
        refused = str(commanded).startswith("/problems/")
        limited = not caller.unlimited and answered == "/problems/not-found"
        if answered == "/problems/forbidden" or limited:
            # The API looks at the right and the reach before it looks at what is there.
            assert refused, (role, commanded)
        elif refused or str(answered).startswith("/problems/"):
            assert answered == commanded, (role, answered, commanded)
        elif case[1] in COMPARED and case[0] == "GET":
            expected = msgspec.json.decode(msgspec.json.encode(commanded))
            assert compared(answered) == compared(expected), role


def compared(found: object) -> list[object]:
    """Return a list without what differs from store to store; of a job only its id."""
    assert isinstance(found, list)
    return [
        one
        if not isinstance(one, dict)
        else one["id"]
        if "attempt" in one
        else {name: value for name, value in one.items() if not name.endswith(("_at", "as_of"))}
        for one in found
    ]


async def test_control_without_the_check_of_the_engine_they_differ(monkeypatch):
    """The commands' side loses its check: the comparison has to notice."""

    async def allow(_self: object, _permission: object, *, everything: bool = False) -> None:
        del everything

    case = next(one for one in CASES if one[1] == "/queues/mail/pause")
    answered = await by_http(case, Role.VIEWER, ())
    monkeypatch.setattr(AuthorizedEngine, "_require", allow)
    assert await by_command(case, Role.VIEWER, Caller()) != answered
