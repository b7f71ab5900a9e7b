"""A dump without the content of jobs, to be shown to others, not to be run.

Names stay: ids, tenants, scopes, queues, tasks, keys, workers and people, with states, numbers and
times. What applications and people wrote is replaced: payloads, results, error texts, notes and
reasons. The audit is left out: a changed record would break its hash chain.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from holdfast.model.failure import Failure
from holdfast.model.job import Job
from holdfast.model.policy import QueuePolicy

from .format import (
    DumpedAttempt,
    DumpedAudit,
    DumpedJob,
    DumpedNote,
    DumpedPolicy,
    DumpRecord,
)

REDACTED = "redacted"
_NOTHING = b"{}"


async def redacted(
    batches: AsyncIterator[Sequence[DumpRecord]],
) -> AsyncIterator[Sequence[DumpRecord]]:
    """Redact a dump, and pause every queue: the jobs have no payload any more."""
    queues: set[str] = set()
    with_policy: set[str] = set()
    async for batch in batches:
        for record in batch:
            if isinstance(record, DumpedJob):
                queues.add(record.job.queue)
            elif isinstance(record, DumpedPolicy):
                with_policy.add(record.queue)
        yield [_redacted(record) for record in batch if not isinstance(record, DumpedAudit)]
    yield [DumpedPolicy(queue, QueuePolicy(paused=True)) for queue in sorted(queues - with_policy)]


def _redacted(record: DumpRecord) -> DumpRecord:
    if isinstance(record, DumpedJob):
        return DumpedJob(_job(record.job))
    if isinstance(record, DumpedAttempt):
        attempt = replace(record.attempt, failure=_failure(record.attempt.failure))
        return replace(record, attempt=attempt)
    if isinstance(record, DumpedNote):
        before = None if record.note.before is None else _NOTHING
        return replace(record, note=replace(record.note, text=REDACTED, before=before))
    if isinstance(record, DumpedPolicy):
        return replace(record, policy=replace(record.policy, paused=True))
    return record


def _job(job: Job) -> Job:
    replays = job.replays
    return replace(
        job,
        payload=_NOTHING if job.payload else job.payload,
        result=None if job.result is None else b"null",
        failure=_failure(job.failure),
        cancel_reason=REDACTED if job.cancel_reason else "",
        replays=None if replays is None else replace(replays, last_why=REDACTED),
    )


def _failure(failure: Failure | None) -> Failure | None:
    return None if failure is None else replace(failure, message=REDACTED, traceback="")
