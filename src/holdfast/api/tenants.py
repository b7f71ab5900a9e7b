"""``/tenants``: the tenants that keys name, with how much each has."""

from __future__ import annotations

from holdfast.model.errors import InvalidInput
from holdfast.model.permissions import Permission
from holdfast.operations.tenants import TenantDetails, TenantView

from .call import Answer, ApiCall, Route
from .exports import EXPORT_MEDIA
from .lists import LIST_PARAMETERS, ListPage, ListSource, PageRequest, answer_list
from .problems import RequestRefused
from .streaming import StreamedAnswer

_MAX_PAGE = 100
"""Each tenant is counted."""


async def list_tenants(call: ApiCall) -> Answer | StreamedAnswer:
    """List the tenants within reach by name, with how many jobs each has."""

    async def fetch(asked: PageRequest) -> ListPage:
        limit = min(asked.limit, _MAX_PAGE)
        found, more = await call.operations.tenants.page(asked.cursor, limit)
        return ListPage(found, found[-1].tenant if more else "")

    return await answer_list(call, ListSource(name="tenants", kind=TenantView, fetch=fetch))


async def show_tenant(call: ApiCall) -> Answer:
    """Return a tenant: its keys, jobs and events."""
    try:
        return Answer(data=await call.operations.tenants.show(call.path["id"]))
    except InvalidInput as error:
        raise RequestRefused("not-found", error.problem) from None


ROUTES = (
    Route(
        operation_id="listTenants",
        method="GET",
        path="/tenants",
        handle=list_tenants,
        permission=Permission.TENANT_MANAGE,
        summary="List the tenants that keys name, with counts",
        parameters=LIST_PARAMETERS,
        media=EXPORT_MEDIA,
        answers=list[TenantView],
    ),
    Route(
        operation_id="getTenant",
        method="GET",
        path="/tenants/{id}",
        handle=show_tenant,
        permission=Permission.TENANT_MANAGE,
        summary="Return a tenant with counts",
        answers=TenantDetails,
    ),
)
