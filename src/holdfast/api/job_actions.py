"""``/jobs/{id}/…``: what is done to a job, and what is known of it."""

from __future__ import annotations

import asyncio
from datetime import datetime

import msgspec

from holdfast.model.actions import (
    AnyAction,
    ArchiveJobs,
    ConfirmJobs,
    NoteJobs,
    ReplayJobs,
    RestoreJobs,
)
from holdfast.model.errors import JobNotFound
from holdfast.model.permissions import Permission
from holdfast.operations.attribution import Author
from holdfast.operations.views import AttemptView, JobView, date_of

from .call import Answer, ApiCall, Handle, Route
from .job_bodies import JobActionBody, JobReplayBody, JobResult, Shown, shown

MAX_WAIT_SECONDS = 30
_LOOK_AGAIN_SECONDS = 0.1


class JobNote(msgspec.Struct, frozen=True):
    """An action or a note of a person."""

    kind: str
    at: datetime
    by: str
    text: str


class JobHistory(msgspec.Struct, frozen=True):
    """A job with every attempt and note, the oldest first."""

    job: Shown
    attempts: list[AttemptView]
    notes: list[JobNote]


class JobBlocker(msgspec.Struct, frozen=True, omit_defaults=True):
    """What keeps a job from being claimed."""

    kind: str
    job: str = ""
    """The job that it waits for, if that is within reach."""
    until: datetime | None = None


class JobExplanation(msgspec.Struct, frozen=True):
    """Why a job does not run, or that nothing keeps it back."""

    id: str
    status: str
    claimable: bool
    ahead: int
    blocking: list[JobBlocker]


async def _act(call: ApiCall, action: AnyAction, who: Author) -> Answer:
    view = await call.operations.act(action, call.path["id"], call.tenant, who)
    return Answer(data=shown(view, payload=False))


async def confirm_job(call: ApiCall) -> Answer:
    """Let a job run that waits for a person."""
    return await _act(call, ConfirmJobs(), call.author(call.body(JobActionBody).why))


async def replay_job(call: ApiCall) -> Answer:
    """Run a dead letter again; ``fixed`` says what was fixed, if its failure would come again."""
    asked = call.body(JobReplayBody)
    return await _act(call, ReplayJobs(fixed=asked.fixed), call.author(asked.why))


async def archive_job(call: ApiCall) -> Answer:
    """Put a dead letter aside."""
    return await _act(call, ArchiveJobs(), call.author(call.body(JobActionBody).why))


async def restore_job(call: ApiCall) -> Answer:
    """Make an archived job a dead letter again."""
    return await _act(call, RestoreJobs(), call.author(call.body(JobActionBody).why))


async def note_job(call: ApiCall) -> Answer:
    """Add a note to the history of a job."""
    text = call.author(call.body(JobActionBody).why)
    return await _act(call, NoteJobs(text.why), text)


async def reclaim_job(call: ApiCall) -> Answer:
    """End the lease of a job now: its worker loses it."""
    who = call.author(call.body(JobActionBody).why)
    view = await call.operations.reclaim(call.path["id"], call.tenant, who)
    return Answer(data=shown(view, payload=False))


async def show_history(call: ApiCall) -> Answer:
    """Return a job with every attempt and note."""
    found = (await call.operations.engine.history([call.path["id"]], tenant=call.tenant))[0]
    if found is None:
        raise JobNotFound(call.path["id"])
    return Answer(
        data=JobHistory(
            shown(JobView.of(found.job), payload=False),
            [AttemptView.of(one) for one in found.attempts],
            [JobNote(one.kind.value, date_of(one.at_us), one.by, one.text) for one in found.notes],
        )
    )


async def explain_job(call: ApiCall) -> Answer:
    """Return what keeps a job from running."""
    found = (await call.operations.engine.explain([call.path["id"]], tenant=call.tenant))[0]
    if found is None:
        raise JobNotFound(call.path["id"])
    blocking = [
        JobBlocker(one.kind.value, one.job, date_of(one.until_us) if one.until_us else None)
        for one in found.blockers
    ]
    job = found.job
    return Answer(
        data=JobExplanation(
            job.id, job.state.value, claimable=not blocking, ahead=found.ahead, blocking=blocking
        )
    )


async def show_result(call: ApiCall) -> Answer:
    """Return the result of a job; ``wait`` is how many seconds to wait for it."""
    await call.require(Permission.PAYLOAD_READ)
    loop = asyncio.get_running_loop()
    give_up = loop.time() + call.number("wait", 0, 0, MAX_WAIT_SECONDS)
    while True:
        job = await call.job()
        left = give_up - loop.time()
        if job.state.finished or left <= 0 or call.draining():
            break
        await asyncio.sleep(min(left, _LOOK_AGAIN_SECONDS))
    raw = msgspec.Raw(job.result or b"null")
    done = JobResult(job.id, job.state.value, job.state.finished, raw)
    return Answer(data=done, status=200 if job.state.finished else 202)


def _action(path: str, handle: Handle, permission: Permission, summary: str) -> Route:
    return Route(
        operation_id=f"{'note' if path == 'notes' else path}Job",
        method="POST",
        path=f"/jobs/{{id}}/{path}",
        handle=handle,
        permission=permission,
        summary=summary,
        body=JobReplayBody if path == "replay" else JobActionBody,
        example={"why": "the provider works again"},
        answers=JobView,
    )


def _look(name: str, path: str, handle: Handle, answers: object, summary: str) -> Route:
    return Route(
        operation_id=name,
        method="GET",
        path=f"/jobs/{{id}}/{path}",
        handle=handle,
        permission=Permission.PAYLOAD_READ if path == "result" else Permission.JOB_READ,
        summary=summary,
        parameters=("wait",) if path == "result" else (),
        answers=answers,
        statuses=(200, 202) if path == "result" else (200,),
    )


ROUTES = (
    _action("confirm", confirm_job, Permission.JOB_CONFIRM, "Let a job run that waits"),
    _action("replay", replay_job, Permission.JOB_REPLAY, "Run a dead letter again"),
    _action("reclaim", reclaim_job, Permission.JOB_RECLAIM, "End the lease of a job"),
    _action("archive", archive_job, Permission.JOB_ARCHIVE, "Put a dead letter aside"),
    _action("restore", restore_job, Permission.JOB_ARCHIVE, "Make it a dead letter again"),
    _action("notes", note_job, Permission.JOB_NOTE, "Add a note to a job"),
    _look("getJobHistory", "history", show_history, JobHistory, "Return attempts and notes"),
    _look("explainJob", "explain", explain_job, JobExplanation, "Return why a job waits"),
    _look("getJobResult", "result", show_result, JobResult, "Return a result, or wait for it"),
)
