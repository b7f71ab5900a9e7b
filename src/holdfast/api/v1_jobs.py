"""``/v1/jobs``: the older shape of jobs, translated to ``/v2`` and back.

What it says of a job has the words of the SQL views: ``type``, ``attempts``, ``owner``, and the
status ``pending``, ``processing``, ``done``, ``failed`` or ``cancelled``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

import msgspec
from msgspec.structs import replace

from holdfast.model.job import State
from holdfast.model.permissions import Permission

from . import job_actions, jobs
from .call import Answer, ApiCall, Route, invalid
from .job_bodies import JobActionBody, JobReceipt, NewJobBody, Shown
from .problems import RequestRefused
from .streaming import StreamedAnswer

VERSION = "1"
_STATUS: Mapping[State, str] = {
    State.BLOCKED: "pending",
    State.PENDING: "pending",
    State.IN_FLIGHT: "processing",
    State.COMPLETED: "done",
    State.CANCELLED: "cancelled",
    State.DEAD: "failed",
    State.ARCHIVED: "failed",
}
_NAMES: Mapping[str, str] = {
    "id": "id",
    "tenant": "tenant",
    "queue": "queue",
    "task": "type",
    "attempt": "attempts",
    "max_attempts": "max_attempts",
    "priority": "priority",
    "version": "version",
    "payload": "payload",
    "result": "result",
    "created_at": "created_at",
    "run_at": "next_retry_at",
    "claimed_at": "processing_started_at",
    "finished_at": "processed_at",
    "worker": "owner",
    "lease_until": "lease_until",
    "error_reason": "error_reason",
    "last_error": "last_error",
    "replay_count": "replay_count",
}
"""The field of ``/v2``, and that of ``/v1``."""


class NewJobV1(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job to create, as ``/v1`` has it."""

    type: str
    payload: dict[str, object] = {}
    id: str | None = None
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    scheduled_at: datetime | None = None
    needs_confirmation: bool = False


class ReasonV1(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why something is done to a job."""

    reason: str


class JobV1(msgspec.Struct, frozen=True):
    """A job, as ``/v1`` shows it; what is not set is left out."""

    id: str
    tenant: str
    status: str
    type: str | msgspec.UnsetType = msgspec.UNSET
    queue: str | msgspec.UnsetType = msgspec.UNSET
    attempts: int | msgspec.UnsetType = msgspec.UNSET
    max_attempts: int | msgspec.UnsetType = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    version: int | msgspec.UnsetType = msgspec.UNSET
    needs_confirmation: bool | msgspec.UnsetType = msgspec.UNSET
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    created_at: datetime | msgspec.UnsetType = msgspec.UNSET
    next_retry_at: datetime | msgspec.UnsetType = msgspec.UNSET
    processing_started_at: datetime | msgspec.UnsetType = msgspec.UNSET
    processed_at: datetime | msgspec.UnsetType = msgspec.UNSET
    owner: str | msgspec.UnsetType = msgspec.UNSET
    lease_until: datetime | msgspec.UnsetType = msgspec.UNSET
    error_reason: str | msgspec.UnsetType = msgspec.UNSET
    last_error: str | msgspec.UnsetType = msgspec.UNSET
    replay_count: int | msgspec.UnsetType = msgspec.UNSET


def _older(fields: Shown) -> dict[str, object]:
    """Return a job of ``/v2`` as ``/v1`` shows it."""
    state = State(msgspec.json.decode(fields["status"], type=str))
    held = state is State.BLOCKED and "hold" in fields
    found: dict[str, object] = {_NAMES[name]: fields[name] for name in _NAMES if name in fields}
    return {**found, "status": _STATUS[state], "needs_confirmation": held}


def _of_job(answer: Answer) -> Answer:
    data = cast("Shown | None", answer.data)
    return replace(
        answer,
        data=None if data is None else _older(data),
        meta={**answer.meta, "api_version": VERSION},
    )


def _of_receipt(answer: Answer) -> Answer:
    made = answer.data
    if not isinstance(made, JobReceipt):
        raise TypeError("a receipt of a new job is translated")
    location = answer.headers["location"].replace("/v2/", "/v1/", 1)
    return replace(
        answer,
        data=JobV1(made.id, made.tenant, "pending"),
        meta={**answer.meta, "api_version": VERSION},
        headers={**answer.headers, "location": location},
    )


async def create_job(call: ApiCall) -> Answer:
    """Create a job."""
    asked = call.body(NewJobV1)
    body = NewJobBody(
        task=asked.type,
        payload=asked.payload,
        id=asked.id,
        queue=asked.queue,
        priority=asked.priority,
        max_attempts=asked.max_attempts,
        run_at=asked.scheduled_at,
        hold=asked.needs_confirmation,
    )
    if call.keyed is not None:
        call.keyed.shape = _of_receipt
    return _of_receipt(await jobs.create_job(call.translated(body)))


async def list_jobs(call: ApiCall) -> Answer:
    """List jobs, a page at a time."""
    query: list[tuple[str, str]] = []
    for name, value in call.query:
        if name == "status":
            states = [state for state, word in _STATUS.items() if word == value]
            if not states:
                words = ", ".join(sorted(set(_STATUS.values())))
                raise invalid("status", f"it is one of {words}")
            query += [("status", state.value) for state in states]
        else:
            query.append(("task" if name == "type" else name, value))
    answer = await jobs.list_jobs(call.translated(query=query))
    if isinstance(answer, StreamedAnswer):
        raise RequestRefused("not-acceptable", "/v1 answers with application/json: see /v2/jobs")
    listed = cast("list[Shown]", answer.data)
    headers = {name: value for name, value in answer.headers.items() if name != "link"}
    return replace(
        answer,
        data=[_older(one) for one in listed],
        meta={**answer.meta, "api_version": VERSION},
        headers=headers,
    )


async def show_job(call: ApiCall) -> Answer:
    """Return a job, or 304 if it is as the caller has it."""
    return _of_job(await jobs.show_job(call))


async def cancel_job(call: ApiCall) -> Answer:
    """Cancel a job; one that is being processed is asked to stop (202)."""
    why = call.body(ReasonV1).reason
    return _of_job(await jobs.cancel_job(call.translated(query=[("why", why)])))


async def confirm_job(call: ApiCall) -> Answer:
    """Let a job run that waits for a person."""
    body = JobActionBody(call.body(ReasonV1).reason)
    return _of_job(await job_actions.confirm_job(call.translated(body)))


ROUTES: Sequence[Route] = (
    Route(
        operation_id="createJobV1",
        method="POST",
        path="/jobs",
        handle=create_job,
        permission=Permission.JOB_CREATE,
        summary="Create a job",
        body=NewJobV1,
        example={"type": "send_mail", "payload": {"to": "ann@example.org"}},
        answers=JobV1,
        statuses=(201, 200),
    ),
    Route(
        operation_id="listJobsV1",
        method="GET",
        path="/jobs",
        handle=list_jobs,
        permission=Permission.JOB_READ,
        summary="List jobs",
        parameters=("status", "type", "queue", "limit", "cursor", "include"),
        answers=list[JobV1],
    ),
    Route(
        operation_id="getJobV1",
        method="GET",
        path="/jobs/{id}",
        handle=show_job,
        permission=Permission.JOB_READ,
        summary="Return a job",
        parameters=("include",),
        answers=JobV1,
        statuses=(200, 304),
    ),
    Route(
        operation_id="cancelJobV1",
        method="POST",
        path="/jobs/{id}/cancel",
        handle=cancel_job,
        permission=Permission.JOB_CANCEL,
        summary="Cancel a job",
        body=ReasonV1,
        example={"reason": "not needed"},
        answers=JobV1,
        statuses=(200, 202),
    ),
    Route(
        operation_id="confirmJobV1",
        method="POST",
        path="/jobs/{id}/confirm",
        handle=confirm_job,
        permission=Permission.JOB_CONFIRM,
        summary="Let a job run that waits",
        body=ReasonV1,
        example={"reason": "not needed"},
        answers=JobV1,
    ),
)
