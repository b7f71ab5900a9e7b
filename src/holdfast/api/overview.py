"""``/me``, ``/queues`` and ``/failures``: who asks, and how the work stands."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.engines.contract import Counts
from holdfast.model.event import MAX_EVENT_BYTES
from holdfast.model.job import MAX_PAYLOAD_BYTES
from holdfast.model.permissions import Permission, granted
from holdfast.model.policy import DEFAULT_POLICY
from holdfast.model.search import MAX_PAGE
from holdfast.operations.groups import GroupView

from .call import MAX_BODY_BYTES, MAX_DEPTH, Answer, ApiCall, Route
from .exports import EXPORT_MEDIA
from .job_actions import MAX_WAIT_SECONDS
from .job_bodies import MAX_BATCH
from .job_filters import FILTER_PARAMETERS, filter_of_call
from .lists import LIST_PARAMETERS, ListPage, ListSource, PageRequest, answer_list
from .streaming import StreamedAnswer


class Me(msgspec.Struct, frozen=True):
    """Who asks, what they reach and what they may do."""

    name: str
    key_id: str
    roles: list[str]
    tenant: str | None
    """None: every tenant."""
    scopes: list[str]
    """None: every scope."""
    permissions: list[str]
    operations: list[str]
    """The operation ids that are allowed."""
    limits: MeLimits


class MeLimits(msgspec.Struct, frozen=True):
    """How much one call may have, and ask for."""

    body_bytes: int = MAX_BODY_BYTES
    body_depth: int = MAX_DEPTH
    payload_bytes: int = MAX_PAYLOAD_BYTES
    event_bytes: int = MAX_EVENT_BYTES
    batch: int = MAX_BATCH
    """Jobs, or events, in one batch."""
    page: int = MAX_PAGE
    """Items of a list in one answer."""
    result_wait_seconds: int = MAX_WAIT_SECONDS


class QueueCounts(msgspec.Struct, frozen=True):
    """A queue: how many jobs it has in each state, and whether it is paused."""

    queue: str
    counts: Counts
    paused: bool | None
    """None: the key may not see it."""


async def list_queues(call: ApiCall) -> Answer | StreamedAnswer:
    """List the queues with jobs within reach, by name: a cursor is the last name of its page."""

    async def fetch(asked: PageRequest) -> ListPage:
        counts = await call.operations.engine.counts()
        policies = {}
        if known := call.principal.may(Permission.JOB_READ):
            policies = dict(await call.operations.policies())
        names = sorted(queue for queue in counts if queue > asked.cursor)
        page = names[: asked.limit]
        items = [
            QueueCounts(
                queue,
                counts[queue],
                policies.get(queue, DEFAULT_POLICY).paused if known else None,
            )
            for queue in page
        ]
        return ListPage(items, page[-1] if len(names) > len(page) else "")

    return await answer_list(call, ListSource(name="queues", kind=QueueCounts, fetch=fetch))


async def list_failures(call: ApiCall) -> Answer:
    """Return the groups of the dead letters that a filter finds, the largest first."""
    wanted = await filter_of_call(call)
    groups: list[GroupView] = await call.operations.groups.list(wanted)
    return Answer(data=sorted(groups, key=lambda group: (-group.count, group.id)))


def routes_with_me(others: Sequence[Route]) -> Sequence[Route]:
    """Return all routes: what ``/me`` lists as allowed depends on the others."""

    async def show_me(call: ApiCall) -> Answer:
        principal = call.principal
        may, reaches_all = granted(principal.roles), principal.caller.unlimited
        allowed = [
            one.operation_id
            for one in everything
            if one.permission is None
            or (one.permission in may and (reaches_all or not one.everything))
        ]
        return Answer(
            data=Me(
                name=principal.name,
                key_id=principal.key_id,
                roles=[role.value for role in principal.roles],
                tenant=principal.caller.tenant,
                scopes=list(principal.caller.scopes),
                permissions=sorted(permission.value for permission in may),
                operations=allowed,
                limits=MeLimits(),
            )
        )

    me = Route(
        operation_id="getMe",
        method="GET",
        path="/me",
        handle=show_me,
        permission=None,
        summary="Return who asks, and what they may do",
        answers=Me,
    )
    everything = (*others, me)
    return everything


ROUTES = (
    Route(
        operation_id="listQueues",
        method="GET",
        path="/queues",
        handle=list_queues,
        permission=Permission.COUNTS_READ,
        summary="List queues with their counts, by name",
        parameters=LIST_PARAMETERS,
        media=EXPORT_MEDIA,
        answers=list[QueueCounts],
    ),
    Route(
        operation_id="listFailures",
        method="GET",
        path="/failures",
        handle=list_failures,
        permission=Permission.JOB_READ,
        summary="List groups of failures",
        parameters=FILTER_PARAMETERS,
        answers=list[GroupView],
    ),
)
