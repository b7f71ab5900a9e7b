"""``/failures/{group}``: one group of failures, its jobs, and what people do about it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.model.group_life import GroupChange, GroupVerb
from holdfast.model.job import MICROSECONDS
from holdfast.model.permissions import Permission
from holdfast.operations.groups import GroupView
from holdfast.operations.views import JobView

from .call import Answer, ApiCall, Route, invalid
from .conditions import shown_unless_known
from .exports import EXPORT_MEDIA
from .job_bodies import Shown, shown
from .job_filters import FILTER_PARAMETERS, filter_of_call
from .jobs import PAGE_PARAMETERS, page_of
from .streaming import StreamedAnswer

_STATES = {
    "acknowledged": GroupVerb.ACKNOWLEDGE,
    "fixed": GroupVerb.FIX,
    "open": GroupVerb.REOPEN,
}


class FailureDetail(msgspec.Struct, frozen=True):
    """One group with its oldest dead letters, and whom it hits."""

    group: GroupView
    samples: list[Shown]
    hit: list[tuple[str, str]]
    """Tenants and scopes that it hits, as far as its oldest letters show them."""


class FailureChangeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One change to a group: its state, its owner, or until when it is muted."""

    why: str = ""
    state: str | UnsetType = UNSET
    """``acknowledged``, ``fixed`` (with ``fixed_in``) or ``open``."""
    fixed_in: str = ""
    """In what it is fixed: a release, a change."""
    owner: str | UnsetType | None = UNSET
    muted_until: datetime | UnsetType | None = UNSET

    def change(self) -> GroupChange:
        """Return what is to be stored; raise ``RequestRefused``."""
        asked = [one for one in (self.state, self.owner, self.muted_until) if one is not UNSET]
        if len(asked) != 1:
            raise invalid("state", "give one of state, owner and muted_until")
        if self.state is not UNSET:
            if self.state not in _STATES:
                raise invalid("state", f"it is one of {', '.join(_STATES)}")
            if self.fixed_in and self.state != "fixed":
                raise invalid("fixed_in", "it is for the state fixed")
            return GroupChange(_STATES[self.state], self.fixed_in)
        if self.owner is not UNSET:
            return GroupChange(GroupVerb.ASSIGN, self.owner or "")
        if not isinstance(self.muted_until, datetime):
            return GroupChange(GroupVerb.UNMUTE)
        until = self.muted_until
        aware = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
        return GroupChange(GroupVerb.MUTE, until_us=max(0, int(aware.timestamp() * MICROSECONDS)))


class FailureNoteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A note on a group."""

    why: str = ""
    """The text of the note."""


async def show_failure(call: ApiCall) -> Answer:
    """Return one group, with its oldest dead letters and whom it hits."""
    found = await call.operations.groups.detail(call.path["group"])
    samples = [shown(job, payload=False) for job in found.samples]
    return shown_unless_known(call, FailureDetail(found.group, samples, found.hit))


async def list_members(call: ApiCall) -> Answer | StreamedAnswer:
    """Return the jobs of a group, a page at a time."""
    wanted = await filter_of_call(call)
    return await page_of(call, await call.operations.groups.narrow(wanted, call.path["group"]))


async def change_failure(call: ApiCall) -> Answer:
    """Acknowledge a group, say that it is fixed, assign it or mute it."""
    asked = call.body(FailureChangeBody)
    return await _store(call, asked.change(), asked.why)


async def note_failure(call: ApiCall) -> Answer:
    """Add a note to a group."""
    return await _store(call, GroupChange(GroupVerb.NOTE), call.body(FailureNoteBody).why)


async def forget_failure(call: ApiCall) -> Answer:
    """Forget what people did with a group; its dead letters stay."""
    return await _store(call, GroupChange(GroupVerb.FORGET), call.value("why"))


async def _store(call: ApiCall, change: GroupChange, why: str) -> Answer:
    who = call.author(why)
    change.check()
    return Answer(data=await call.operations.groups.change(call.path["group"], change, who))


_EXAMPLES = {
    "PATCH": {"state": "fixed", "fixed_in": "release 12", "why": "a null is allowed now"},
    "POST": {"why": "the provider looks at it"},
}


def _change(name: str, method: str, path: str, summary: str, body: object) -> Route:
    handles = {"PATCH": change_failure, "POST": note_failure, "DELETE": forget_failure}
    return Route(
        operation_id=name,
        method=method,
        path=f"/failures/{{group}}{path}",
        handle=handles[method],
        permission=Permission.GROUP_SET,
        summary=summary,
        parameters=("why",) if body is None else (),
        body=body,
        example=_EXAMPLES.get(method),
        answers=GroupView | None,
        everything=True,
    )


ROUTES = (
    Route(
        operation_id="getFailure",
        method="GET",
        path="/failures/{group}",
        handle=show_failure,
        permission=Permission.JOB_READ,
        summary="Return a group of failures",
        answers=FailureDetail,
        statuses=(200, 304),
    ),
    Route(
        operation_id="listFailureMembers",
        method="GET",
        path="/failures/{group}/members",
        handle=list_members,
        permission=Permission.JOB_READ,
        summary="List the jobs of a group of failures",
        parameters=(*FILTER_PARAMETERS, *PAGE_PARAMETERS),
        media=EXPORT_MEDIA,
        answers=list[JobView],
    ),
    _change("editFailure", "PATCH", "", "Change the state, owner or muting", FailureChangeBody),
    _change("noteFailure", "POST", "/notes", "Add a note to a group", FailureNoteBody),
    _change("forgetFailure", "DELETE", "", "Forget what people did with a group", None),
)
