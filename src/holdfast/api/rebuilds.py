"""``/rebuilds``: how far they are, and ending, resuming and undoing one."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from holdfast.model.permissions import Permission
from holdfast.model.projection import ProjectionState, Rebuild, RebuildMode
from holdfast.operations.projection_views import ProjectionView, RebuildView
from holdfast.operations.projections import ProjectionOperations

from .call import Answer, ApiCall, Handle, Route
from .job_bodies import JobActionBody
from .problems import RequestRefused


class RebuildBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a projection is to be filled again, and why."""

    why: str
    mode: str = RebuildMode.GENERATION.value
    """``generation``: beside the live table, then swap; ``truncate``: in place; ``emit``: in place,
    through the workers."""
    max_errors: int = 0
    """Go on after so many events that fail."""


class ShownRebuild(RebuildView, frozen=True, omit_defaults=True, kw_only=True):
    """A rebuild and the projection that it is of."""

    projection: str


def operations_of(call: ApiCall) -> ProjectionOperations:
    """Return what can be done with the projections of the store."""
    declared = call.declared
    return ProjectionOperations(call.operations.engine, declared.projections, declared.read)


async def rebuild_answer(
    call: ApiCall, projection: str, rebuild: Rebuild, status: int = 202
) -> Answer:
    """Return a rebuild, and where it is to be found."""
    now_us = await call.operations.engine.now_us()
    tenant = call.principal.caller.tenant
    below = "" if tenant is None else f"/tenants/{quote(tenant, safe='')}"
    headers = {"location": f"/v2{below}/rebuilds/{rebuild.id}"} if status == 202 else {}
    return Answer(data=_shown(projection, rebuild, now_us), status=status, headers=headers)


def _shown(projection: str, rebuild: Rebuild, now_us: int) -> ShownRebuild:
    view = RebuildView.of(rebuild, now_us)
    return ShownRebuild(projection=projection, **msgspec.structs.asdict(view))


async def _named(call: ApiCall) -> tuple[ProjectionState, Rebuild]:
    """Return the rebuild that the path names."""
    for state, rebuild in await operations_of(call).rebuilds():
        if rebuild.id == call.path["id"]:
            return state, rebuild
    raise RequestRefused("not-found", "no such rebuild is remembered: see GET /v2/rebuilds")


async def list_rebuilds(call: ApiCall) -> Answer:
    """List the rebuilds that are remembered, the newest first."""
    now_us = await call.operations.engine.now_us()
    found = await operations_of(call).rebuilds()
    return Answer(data=[_shown(state.name, rebuild, now_us) for state, rebuild in found])


async def show_rebuild(call: ApiCall) -> Answer:
    """Return a rebuild: how far it is, or how it ended."""
    state, rebuild = await _named(call)
    return await rebuild_answer(call, state.name, rebuild, 200)


async def abort_rebuild(call: ApiCall) -> Answer:
    """End a rebuild; what was filled beside the live table is dropped by the next step."""
    who = call.author(call.body(JobActionBody).why)
    state = await _unfinished(call)
    return await rebuild_answer(call, state.name, await operations_of(call).cancel(state.name, who))


async def resume_rebuild(call: ApiCall) -> Answer:
    """Go on with a rebuild that failed."""
    who = call.author(call.body(JobActionBody).why)
    state = await _unfinished(call)
    return await rebuild_answer(call, state.name, await operations_of(call).resume(state.name, who))


async def roll_back(call: ApiCall) -> Answer:
    """Let readers see the generation before the one that this rebuild made."""
    who = call.author(call.body(JobActionBody).why)
    state, rebuild = await _named(call)
    if rebuild.mode is not RebuildMode.GENERATION or state.live != rebuild.generation:
        text = f"readers of {state.name} see generation {state.live}: this rebuild did not make it"
        raise RequestRefused("conflict", text)
    return Answer(data=await operations_of(call).roll_back(state.name, who))


async def _unfinished(call: ApiCall) -> ProjectionState:
    state, rebuild = await _named(call)
    if state.rebuild != rebuild:
        raise RequestRefused("conflict", f"it has ended: it is {rebuild.phase.value}")
    return state


def _action(name: str, handle: Handle, summary: str) -> Route:
    back = name == "rollback"
    return Route(
        operation_id="rollBackRebuild" if back else f"{name}Rebuild",
        method="POST",
        path=f"/rebuilds/{{id}}/{name}",
        handle=handle,
        permission=Permission.PROJECTION_REBUILD,
        everything=True,
        summary=summary,
        body=JobActionBody,
        example={"why": "a new version of the application"},
        answers=ProjectionView if back else ShownRebuild,
        statuses=(200,) if back else (202,),
    )


ROUTES = (
    Route(
        operation_id="listRebuilds",
        method="GET",
        path="/rebuilds",
        handle=list_rebuilds,
        permission=Permission.JOB_READ,
        summary="List rebuilds",
        answers=list[ShownRebuild],
    ),
    Route(
        operation_id="getRebuild",
        method="GET",
        path="/rebuilds/{id}",
        handle=show_rebuild,
        permission=Permission.JOB_READ,
        summary="Return a rebuild",
        answers=ShownRebuild,
    ),
    _action("abort", abort_rebuild, "End a rebuild"),
    _action("resume", resume_rebuild, "Go on with a rebuild that failed"),
    _action("rollback", roll_back, "Return to the generation before that of a rebuild"),
)
