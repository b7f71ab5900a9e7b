"""``/operations``: plan and start operations on many jobs, follow and change them."""

from __future__ import annotations

import difflib
from urllib.parse import quote

from msgspec.structs import replace

from holdfast.model.actions import DETERMINISTIC, EditJobs, ReplayJobs
from holdfast.model.errors import ChangedMeanwhile, InvalidInput, PlanOutdated
from holdfast.model.job import State
from holdfast.model.operation import OperationChange
from holdfast.model.permissions import Permission
from holdfast.model.policy import rate_of
from holdfast.model.search import MAX_PAGE, Filter
from holdfast.operations.access.needed import needed_for
from holdfast.operations.attribution import Author
from holdfast.operations.bulk import OperationRequest
from holdfast.operations.operation_views import OperationView
from holdfast.operations.views import JobView

from .call import Answer, ApiCall, Handle, Route, invalid
from .conditions import expected_version, shown_unless_known, stale, tag_of
from .exports import EXPORT_MEDIA
from .job_filters import FILTER_PARAMETERS, filter_of_names
from .jobs import PAGE_PARAMETERS, page_of
from .lists import DEFAULT_LIMIT
from .operation_bodies import (
    MAX_WITHOUT_PLAN,
    OperationActionBody,
    OperationBody,
    OperationRateBody,
    PlanId,
    PlannedOperation,
)
from .problems import RequestRefused
from .streaming import StreamedAnswer


async def create_operation(call: ApiCall) -> Answer:
    """Plan an operation (``dry_run``), or start the one that was planned."""
    body = call.body(OperationBody)
    action = body.action()
    if isinstance(action, EditJobs):
        await call.require(Permission.PAYLOAD_READ)  # how many stay as they are tells of them
    if body.dry_run:
        plan = await call.operations.bulk.plan(await _request(call, body, None))
        return Answer(data=PlannedOperation.of(body, plan))
    for permission in needed_for(action, body.limit):
        await call.require(permission)
    who, seen = call.author(body.why), PlanId.read(body)
    if seen is None and (body.filter or not 0 < len(body.ids) <= MAX_WITHOUT_PLAN):
        text = f"send it with dry_run first, then with the plan_id; up to {MAX_WITHOUT_PLAN} ids"
        raise RequestRefused("plan-required", f"{text} need none")
    return await _start(call, await _request(call, body, seen), seen, who)


async def _start(
    call: ApiCall, request: OperationRequest, seen: PlanId | None, who: Author
) -> Answer:
    bulk = call.operations.bulk
    plan = await bulk.plan(request)
    unfixed = isinstance(request.action, ReplayJobs) and plan.skipped.get(DETERMINISTIC, 0)
    if unfixed and not plan.would:
        text = f"the failures of {unfixed:,} would come again: say what was fixed"
        raise RequestRefused("fix-required", text)
    try:
        started = await bulk.start(request, plan, who, expect=None if seen is None else seen.would)
    except PlanOutdated as error:
        text = f"the plan counted {error.expected:,}, and now it would be {error.found}: plan again"
        extra = {"expected": error.expected, "found": plan.would}
        raise RequestRefused("selection-changed", text, extra=extra) from None
    except InvalidInput as error:
        if error.field != "as_of":
            raise
        raise RequestRefused("selection-changed", error.problem) from None
    view = OperationView.of(started)
    tenant = call.principal.caller.tenant
    below = "" if tenant is None else f"/tenants/{quote(tenant, safe='')}"
    headers = {"location": f"/v2{below}/operations/{view.id}", "etag": tag_of(view.version, view)}
    return Answer(data=view, status=202, headers=headers)


async def _request(call: ApiCall, body: OperationBody, seen: PlanId | None) -> OperationRequest:
    """Return what is asked for, as of the moment of the plan that was seen, or of now."""
    engine = call.operations.engine
    now_us = await engine.now_us() if seen is None else seen.as_of_us
    return OperationRequest(
        action=body.action(),
        wanted=await _filter(call, body, now_us),
        limit=body.limit,
        rate=None if body.rate is None else rate_of("rate", body.rate),
        canary=body.canary,
        abort_ratio=body.abort_above,
        as_of_us=None if seen is None else seen.as_of_us,
    )


async def _filter(call: ApiCall, body: OperationBody, now_us: int) -> Filter:
    named = body.conditions()
    for name in named:
        if name not in FILTER_PARAMETERS:
            near = difflib.get_close_matches(name[:100], FILTER_PARAMETERS, 1)
            meant = f"; is {near[0]!r} meant?" if near else ""
            raise invalid("filter", f"{name[:100]!r} is no condition{meant}")
    wanted = await filter_of_names(call, named, now_us)
    wanted = replace(wanted, ids=tuple(dict.fromkeys([*wanted.ids, *body.ids])))
    if isinstance(body.action(), EditJobs) and not wanted.states:
        wanted = replace(wanted, states=(State.DEAD,))
    wanted.check()
    return wanted


async def list_operations(call: ApiCall) -> Answer:
    """Return operations, the newest first."""
    running = call.value("running", "false")
    if running not in ("true", "false"):
        raise invalid("running", "it is true or false")
    limit = call.number("limit", DEFAULT_LIMIT, 1, MAX_PAGE)
    found = await call.operations.bulk.listed(running=running == "true", limit=limit)
    return Answer(data=found)


async def show_operation(call: ApiCall) -> Answer:
    """Return how far an operation is, and what came of it."""
    view = await call.operations.bulk.report(call.path["operation"])
    return shown_unless_known(call, view, view.version)


async def list_items(call: ApiCall) -> Answer | StreamedAnswer:
    """Return the jobs that a replay put back, as they are now."""
    view = await call.operations.bulk.report(call.path["operation"])
    if view.action != "replay":
        raise RequestRefused("not-found", f"which jobs a {view.action} acted on is not kept")
    return await page_of(call, Filter(replay_run=view.id))


async def _change(call: ApiCall, change: OperationChange, who: Author) -> Answer:
    try:
        view = await call.operations.bulk.change(call.path["operation"], change, who)
    except ChangedMeanwhile as error:
        raise stale(call, error) from None
    except InvalidInput as error:
        if error.field != "operation":
            raise
        raise RequestRefused("illegal-transition", error.problem) from None
    return Answer(data=view, headers={"etag": tag_of(view.version, view)})


def _changing(change: OperationChange) -> Handle:
    async def handle(call: ApiCall) -> Answer:
        return await _change(call, change, call.author(call.body(OperationActionBody).why))

    return handle


async def change_rate(call: ApiCall) -> Answer:
    """Change how many jobs an operation acts on per time."""
    asked = call.body(OperationRateBody)
    who, version = call.author(asked.why), expected_version(call, asked.version)
    change = OperationChange(without_rate=True, version=version)
    if asked.rate is not None:
        change = OperationChange(rate=rate_of("rate", asked.rate), version=version)
    return await _change(call, change, who)


def _action(name: str, change: OperationChange, summary: str) -> Route:
    return Route(
        operation_id=f"{name}Operation",
        method="POST",
        path=f"/operations/{{operation}}/{name}",
        handle=_changing(change),
        permission=Permission.JOB_READ,
        summary=summary,
        body=OperationActionBody,
        example={"why": "the provider is slow"},
        answers=OperationView,
    )


ROUTES = (
    Route(
        operation_id="createOperation",
        method="POST",
        path="/operations",
        handle=create_operation,
        permission=Permission.JOB_READ,
        summary="Plan or start an operation on many jobs; its verb needs a permission of its own",
        body=OperationBody,
        example={"verb": "replay", "filter": {"queue": "mail"}, "dry_run": True},
        answers=OperationView,
        statuses=(202, 200),
        other_answers={200: PlannedOperation},
    ),
    Route(
        operation_id="listOperations",
        method="GET",
        path="/operations",
        handle=list_operations,
        permission=Permission.JOB_READ,
        summary="List operations, the newest first",
        parameters=("running", "limit"),
        answers=list[OperationView],
    ),
    Route(
        operation_id="getOperation",
        method="GET",
        path="/operations/{operation}",
        handle=show_operation,
        permission=Permission.JOB_READ,
        summary="Return how far an operation is",
        answers=OperationView,
        statuses=(200, 304),
    ),
    Route(
        operation_id="setOperationRate",
        method="PATCH",
        path="/operations/{operation}",
        handle=change_rate,
        permission=Permission.JOB_READ,
        summary="Change the rate of an operation",
        body=OperationRateBody,
        example={"rate": "100/m", "version": 1, "why": "the provider is slow"},
        answers=OperationView,
    ),
    Route(
        operation_id="listOperationItems",
        method="GET",
        path="/operations/{operation}/items",
        handle=list_items,
        permission=Permission.JOB_READ,
        summary="List the jobs that a replay put back",
        parameters=PAGE_PARAMETERS,
        media=EXPORT_MEDIA,
        answers=list[JobView],
    ),
    _action("pause", OperationChange(paused=True), "Act on no more jobs for now"),
    _action("resume", OperationChange(paused=False), "Go on with an operation"),
    _action("abort", OperationChange(abort=True), "End an operation; what is done stays done"),
)
