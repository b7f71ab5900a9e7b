"""``/projections``: how far behind they are, their rows, and what is done with them."""

from __future__ import annotations

from holdfast.model.permissions import Permission
from holdfast.model.projection import RebuildMode
from holdfast.model.search import MAX_PAGE
from holdfast.operations.projection_views import ProjectionView
from holdfast.projections.chronicle import CHRONICLE

from .call import Answer, ApiCall, Handle, Route, invalid
from .job_bodies import JobActionBody
from .lists import DEFAULT_LIMIT
from .rebuilds import RebuildBody, ShownRebuild, operations_of, rebuild_answer


async def list_projections(call: ApiCall) -> Answer:
    """List the projections that the store or this server knows."""
    await call.require(Permission.COUNTS_READ)  # lag and held keys are counts
    return Answer(data=await operations_of(call).listed())


async def show_projection(call: ApiCall) -> Answer:
    """Return a projection: its lag, held keys, generation, and last rebuild."""
    await call.require(Permission.COUNTS_READ)  # first, or a 404 would tell what is there
    return Answer(data=await operations_of(call).show(call.path["id"]))


async def pause_projection(call: ApiCall) -> Answer:
    """Apply no more events, until it is resumed."""
    return await _set_paused(call, paused=True)


async def resume_projection(call: ApiCall) -> Answer:
    """Apply events again."""
    return await _set_paused(call, paused=False)


async def _set_paused(call: ApiCall, *, paused: bool) -> Answer:
    who = call.author(call.body(JobActionBody).why)
    projections = operations_of(call)
    queue = (await projections.show(call.path["id"])).queue
    await call.operations.change_policy(queue, {"paused": paused}, who, also_known=[queue])
    return Answer(data=await projections.show(call.path["id"]))


async def rebuild_projection(call: ApiCall) -> Answer:
    """Store that a projection is to be filled again; daemons carry it out."""
    asked = call.body(RebuildBody)
    if asked.mode not in list(RebuildMode):
        raise invalid("mode", f"it is {', '.join(RebuildMode)}")
    started = await operations_of(call).start(
        call.path["id"],
        RebuildMode(asked.mode),
        call.author(asked.why),
        max_errors=asked.max_errors,
    )
    return await rebuild_answer(call, call.path["id"], started)


async def list_rows(call: ApiCall) -> Answer:
    """Return rows of a projection that is declared here, as its readers see them now."""
    if call.path["id"] == CHRONICLE:
        raise invalid("id", "its entries are at /v2/chronicle, which hides what is sensitive")
    where: dict[str, str] = {}
    for condition in call.values("where"):
        column, equals, value = condition.partition("=")
        if not equals or column in where:
            raise invalid("where", f"{condition[:60]!r} is not COLUMN=VALUE, each column once")
        where[column] = value
    order = call.value("order")
    if order and not order.strip("-"):
        raise invalid("order", "give the name of a column")
    found = await operations_of(call).rows(
        call.path["id"],
        where,
        search=call.value("search"),
        order=order,
        limit=call.number("limit", DEFAULT_LIMIT, 1, MAX_PAGE),
    )
    meta = {"columns": found.columns, "made": found.made, "incomplete": found.incomplete}
    return Answer(data=found.rows, meta=meta)


def _action(name: str, handle: Handle, permission: Permission, summary: str) -> Route:
    return Route(
        operation_id=f"{name}Projection",
        method="POST",
        path=f"/projections/{{id}}/{name}",
        handle=handle,
        permission=permission,
        everything=True,
        summary=summary,
        body=RebuildBody if name == "rebuild" else JobActionBody,
        example={"why": "a new version of the application"},
        answers=ShownRebuild if name == "rebuild" else ProjectionView,
        statuses=(202,) if name == "rebuild" else (200,),
    )


ROUTES = (
    Route(
        operation_id="listProjections",
        method="GET",
        path="/projections",
        handle=list_projections,
        permission=Permission.JOB_READ,
        summary="List projections with their lag",
        answers=list[ProjectionView],
    ),
    Route(
        operation_id="getProjection",
        method="GET",
        path="/projections/{id}",
        handle=show_projection,
        permission=Permission.JOB_READ,
        summary="Return a projection",
        answers=ProjectionView,
    ),
    Route(
        operation_id="listProjectionRows",
        method="GET",
        path="/projections/{id}/rows",
        handle=list_rows,
        permission=Permission.PAYLOAD_READ,
        summary="Return rows of a projection",
        parameters=("where", "search", "order", "limit"),
        answers=list[dict[str, object]],
    ),
    _action("pause", pause_projection, Permission.QUEUE_PAUSE, "Apply no more events"),
    _action("resume", resume_projection, Permission.QUEUE_PAUSE, "Apply events again"),
    _action(
        "rebuild", rebuild_projection, Permission.PROJECTION_REBUILD, "Fill a projection again"
    ),
)
