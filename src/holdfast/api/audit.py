"""``/audit``: who did what, when and why; and whether that record was altered."""

from __future__ import annotations

import msgspec

from holdfast.model.errors import InvalidInput
from holdfast.model.permissions import Permission
from holdfast.operations.named_audit_filter import NAMES, SEVERAL, audit_filter_of, audit_head_of
from holdfast.operations.views import AuditView

from .call import Answer, ApiCall, Route, invalid
from .exports import EXPORT_MEDIA
from .lists import LIST_PARAMETERS, ListPage, ListSource, PageRequest, answer_list
from .problems import RequestRefused
from .streaming import StreamedAnswer

_ORDERS = {"-recorded": True, "recorded": False}
_MAX_DIGITS = 18


class AuditCheck(msgspec.Struct, frozen=True):
    """Whether the chain of the audit is whole, and its end."""

    whole: bool
    count: int
    head: str
    """``COUNT:HASH``: keep it elsewhere, and give it to the next check."""
    problem: str


async def list_audit(call: ApiCall) -> Answer | StreamedAnswer:
    """List entries, the newest first: those of the tenant, or one's own acts."""
    given: dict[str, object] = {
        field: call.values(name) if field in SEVERAL else call.value(name) or None
        for name, field in NAMES.items()
    }
    try:
        wanted = audit_filter_of(given, await call.operations.engine.now_us())
    except InvalidInput as error:
        names = {field: name for name, field in NAMES.items()}
        raise invalid(names.get(error.field, error.field), error.problem) from None
    order = call.value("order", "-recorded")
    if order not in _ORDERS:
        raise invalid("order", "it is recorded or -recorded")

    async def fetch(asked: PageRequest) -> ListPage:
        found = await call.operations.audit(
            wanted, after=int(asked.cursor or 0), limit=asked.limit, newest=_ORDERS[order]
        )
        return ListPage(found, str(found[-1].number) if len(found) == asked.limit else "")

    return await answer_list(call, ListSource(name="audit", kind=AuditView, fetch=fetch))


async def show_audit(call: ApiCall) -> Answer:
    """Return one entry by its number."""
    number = _number(call.path["id"])
    found = await call.operations.audit(after=number - 1, limit=1) if number else []
    if not found or found[0].number != number:
        raise RequestRefused("not-found", "the audit has no such entry within reach")
    return Answer(data=found[0])


async def verify_audit(call: ApiCall) -> Answer:
    """Verify the chain of hashes; ``head`` is an earlier one that must be part of it."""
    text = call.value("head")
    try:
        expected = audit_head_of(text) if text else None
    except InvalidInput as error:
        raise invalid("head", error.problem) from None
    head, problem = await call.operations.verify_audit(expected)
    return Answer(data=AuditCheck(not problem, head.count, f"{head.count}:{head.hash}", problem))


def _number(text: str) -> int | None:
    plain = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if plain else None


ROUTES = (
    Route(
        operation_id="listAudit",
        method="GET",
        path="/audit",
        handle=list_audit,
        permission=Permission.AUDIT_OWN,
        summary="List what people did",
        parameters=(*NAMES, *LIST_PARAMETERS, "order"),
        media=EXPORT_MEDIA,
        answers=list[AuditView],
    ),
    Route(
        operation_id="verifyAudit",
        method="GET",
        path="/audit:verify",
        handle=verify_audit,
        permission=Permission.AUDIT_READ,
        everything=True,
        summary="Verify that the audit was not altered",
        parameters=("head",),
        answers=AuditCheck,
    ),
    Route(
        operation_id="getAuditEntry",
        method="GET",
        path="/audit/{id}",
        handle=show_audit,
        permission=Permission.AUDIT_OWN,
        summary="Return an entry of the audit",
        answers=AuditView,
    ),
)
