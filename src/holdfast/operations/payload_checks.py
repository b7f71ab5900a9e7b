"""Checks what an edit or a retarget would leave against today's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.engines.contract import Engine
from holdfast.model import operation as operations
from holdfast.model.actions import AnyAction, EditJobs, RetargetJobs
from holdfast.model.errors import PayloadInvalid
from holdfast.model.job import Job
from holdfast.model.payload_paths import NoSuchPath, assign, value_at
from holdfast.model.search import MAX_PAGE

from .bulk import SAMPLES, OperationRequest

if TYPE_CHECKING:
    from holdfast.worker.registry import Registry

UNKNOWN_TASK = "no task of this name is in the application"


class PayloadProblem(msgspec.Struct, frozen=True):
    """Why a task cannot run with a payload."""

    id: str
    task: str
    problem: str


class FieldChange(msgspec.Struct, frozen=True):
    """One difference that a change makes; values are JSON, and empty where nothing is."""

    id: str
    field: str
    before: str
    after: str


class PayloadCheck(msgspec.Struct, frozen=True):
    """What an edit or a retarget would leave: problems, and the differences of some jobs."""

    application: bool
    """Whether the tasks of an application are known here."""
    checked: int
    """How many jobs were checked against the signature of their task."""
    unknown: list[str] = []
    """Tasks that are not known here, so that nothing was checked."""
    problems: list[PayloadProblem] = []
    changes: list[FieldChange] = []


async def check_payloads(
    engine: Engine, registry: Registry | None, request: OperationRequest
) -> PayloadCheck:
    """Check up to a thousand members; a problem that the change does not cause is none of it."""
    now_us = await engine.now_us() if request.as_of_us is None else request.as_of_us
    wanted = operations.members(request.action, request.wanted, now_us)
    found = await engine.find(wanted, limit=min(request.limit or MAX_PAGE, MAX_PAGE))
    checked, problems, unknown = 0, [], set()
    changes: list[FieldChange] = []
    jobs = [job for job in found.jobs if not request.action.skip_reason(job, named=True)]
    for number, job in enumerate(jobs):
        task, payload = _after(request.action, job)
        if number < SAMPLES:
            changes += _changes(request.action, job, payload)
        if registry is None or task not in registry.tasks:
            unknown.add(task)
            continue
        checked += 1
        problem = payload_problem(registry, task, payload)
        if problem and problem != payload_problem(registry, job.task, job.payload):
            problems.append(PayloadProblem(job.id, task, problem))
    return PayloadCheck(registry is not None, checked, sorted(unknown), problems, changes)


def payload_problem(registry: Registry, task: str, payload: bytes) -> str:
    """Return why a task cannot be called with a payload, or an empty text."""
    # Not at the top: commands that only look import this module, and not what runs tasks.
    from holdfast.worker.builtin_tasks import BY_TYPE, by_type  # noqa: PLC0415

    if task not in registry.tasks:
        return UNKNOWN_TASK
    spec = registry.tasks[task]
    if task == BY_TYPE:
        spec, payload = by_type(registry, payload)
    try:
        spec.signature.check(payload)
    except PayloadInvalid as error:
        return error.problem
    return ""


def _after(action: AnyAction, job: Job) -> tuple[str, bytes]:
    """Return the task and the payload that a job would have."""
    if isinstance(action, RetargetJobs):
        return action.task, job.payload
    if isinstance(action, EditJobs):
        return job.task, assign(job.payload, action.assignments)
    return job.task, job.payload


def _changes(action: AnyAction, job: Job, payload: bytes) -> list[FieldChange]:
    if isinstance(action, RetargetJobs):
        return [FieldChange(job.id, "task", job.task, action.task)]
    if not isinstance(action, EditJobs):
        return []
    return [
        FieldChange(job.id, one.path, _value(job.payload, one.path), _value(payload, one.path))
        for one in action.assignments
    ]


def _value(payload: bytes, path: str) -> str:
    try:
        return msgspec.json.encode(value_at(payload, path)).decode()
    except NoSuchPath:
        return ""
