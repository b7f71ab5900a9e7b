"""Why a job does not run: what keeps a claim from returning it, and what the workers lack.

The first is exact and comes from the engine; the second is what the live workers last announced.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.engines.contract import Engine
from holdfast.model.audit import AuditFilter, AuditRecord
from holdfast.model.errors import JobNotFound
from holdfast.model.explain import BlockerKind, Explanation
from holdfast.model.fleet import WorkerProcess
from holdfast.model.job import Job, State
from holdfast.model.plural import count_of
from holdfast.model.policy import DEFAULT_POLICY

from .fleet import FleetOperations
from .reasons import Pause, ReasonContext, reason_of
from .views import ExplanationView, ReasonView

_WAITING = (State.PENDING, State.BLOCKED)


async def explain_job(
    engine: Engine, fleet: FleetOperations, job_id: str, tenant: str
) -> ExplanationView:
    """Return why a job does not run, or raise ``JobNotFound``."""
    found = (await engine.explain([job_id], tenant=tenant))[0]
    if found is None:
        raise JobNotFound(job_id)
    job = found.job
    advisory: list[ReasonView] = []
    if job.state in _WAITING:
        live = [entry.process for entry in await fleet.live()]
        advisory = list(_worker_reasons(job, live, claimable=not found.blockers))
    return ExplanationView(
        job.id,
        job.tenant,
        job.state.value,
        job.queue,
        job.task,
        claimable=not found.blockers,
        ahead=found.ahead,
        blocking=await _blocking(engine, found),
        advisory=advisory,
    )


async def _blocking(engine: Engine, found: Explanation) -> list[ReasonView]:
    queue = found.job.queue
    policy = DEFAULT_POLICY
    if not found.job.state.finished:
        policy = (await engine.policies()).get(queue, DEFAULT_POLICY)
    pause = None
    if any(blocker.kind is BlockerKind.PAUSED for blocker in found.blockers):
        pause = await _pause_of(engine, queue)
    context = ReasonContext(found.job, found.at_us, policy, pause)
    return [reason_of(blocker, context) for blocker in found.blockers]


class _Paused(msgspec.Struct):
    paused: bool | None = None


class _Changes(msgspec.Struct):
    """What an audit entry says about the pause of a queue."""

    after: _Paused = msgspec.field(default_factory=_Paused)
    paused: bool | None = None
    """Where entries of earlier versions have it."""


async def _pause_of(engine: Engine, queue: str) -> Pause | None:
    """Return who paused a queue last, if the audit tells."""
    wanted = AuditFilter(actions=("queue.policy",), resource_type="queue", resource_id=queue)
    for record in await engine.audited(wanted, newest=True):
        paused = _paused_after(record)
        if paused is not None:
            entry = record.entry
            return Pause(entry.user_id, record.at_us, entry.reason) if paused else None
    return None


def _paused_after(record: AuditRecord) -> bool | None:
    try:
        changes = msgspec.json.decode(record.entry.changes, type=_Changes)
    except msgspec.MsgspecError:
        return None
    return changes.paused if changes.after.paused is None else changes.after.paused


def _worker_reasons(
    job: Job, live: Sequence[WorkerProcess], *, claimable: bool
) -> Iterator[ReasonView]:
    """Yield what the live workers lack to claim this job."""
    queue, task = job.queue, job.task
    serving = [process for process in live if process.serves(queue)]
    if not live:
        yield ReasonView("worker", "No worker runs on this store.", "holdfast run MODULE:APP")
        return
    if not serving:
        text = f"No live worker serves queue {queue!r}."
        yield ReasonView("worker", text, f"holdfast run MODULE:APP --queue {shlex.quote(queue)}")
        return
    if all(process.draining for process in serving):
        text = f"Every live worker that serves queue {queue!r} is draining."
        yield ReasonView("worker", text, 'holdfast workers resume --reason "…"')
    knowing = [process for process in serving if task in process.tasks]
    if not knowing:
        text = f"No live worker that serves queue {queue!r} knows task {task!r}."
        yield ReasonView("task", text, "holdfast workers list")
        return
    reports = [one for process in knowing for one in process.processes.values() if one is not None]
    slots = sum(one.slots for one in reports)
    if claimable and slots and all(one.busy >= one.slots for one in reports):
        text = f"Every slot of the workers that serve queue {queue!r} is busy: {slots:,} of them."
        yield ReasonView("slots", text, 'holdfast workers resize N --reason "…"')


def summary_of(view: ExplanationView) -> str:
    """Return the answer in one sentence."""
    name = f"Job {view.id!r}"
    if view.claimable and view.ahead:
        before = count_of(view.ahead, "due job")
        return f"{name} is ready to run, behind {before} of queue {view.queue!r}."
    if view.claimable:
        return f"{name} is ready to run: the next free slot for queue {view.queue!r} takes it."
    if view.status in _WAITING:
        return f"{name} is {view.status} and cannot run yet."
    return f"{name} is {view.status.replace('_', ' ')}."
