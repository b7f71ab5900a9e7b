"""A dump without the content of jobs, to be shown to others, not to be run.

Names stay: ids, tenants, queues, tasks, workers and people, with states, numbers and times. What
applications and people wrote is replaced: payloads, results, error texts, notes and reasons.
Scopes, keys, unique keys and ids of entities, which often name a customer, become pseudonyms: the
same text is the same pseudonym everywhere in one dump, and another one in the next dump. So jobs of
one key still run in order, and a scope still contains what it contained. The audit is left out: a
changed record would break its hash chain. So are the keys for the HTTP API.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from hashlib import blake2b
from secrets import token_bytes

from msgspec.structs import replace

from holdfast.model.event import Event
from holdfast.model.failure import Failure
from holdfast.model.group_life import GroupLife, GroupVerb
from holdfast.model.job import Job
from holdfast.model.policy import QueuePolicy

from .format import (
    DumpedAttempt,
    DumpedAudit,
    DumpedEvent,
    DumpedGroup,
    DumpedJob,
    DumpedNote,
    DumpedOperation,
    DumpedPolicy,
    DumpedRecord,
    DumpRecord,
)

REDACTED = "redacted"
_NOTHING = b"{}"


async def redacted(
    batches: AsyncIterator[Sequence[DumpRecord]],
) -> AsyncIterator[Sequence[DumpRecord]]:
    """Redact a dump, and pause every queue: the jobs have no payload any more."""
    pseudonyms = Pseudonyms()
    queues: set[str] = set()
    with_policy: set[str] = set()
    async for batch in batches:
        for record in batch:
            if isinstance(record, DumpedJob):
                queues.add(record.job.queue)
            elif isinstance(record, DumpedPolicy):
                with_policy.add(record.queue)
        yield [
            _redacted(record, pseudonyms)
            for record in batch
            if not isinstance(record, DumpedAudit | DumpedOperation | DumpedRecord)
        ]
    yield [DumpedPolicy(queue, QueuePolicy(paused=True)) for queue in sorted(queues - with_policy)]


class Pseudonyms:
    """Replaces texts of one dump: the same text by the same pseudonym, which does not reveal it."""

    def __init__(self) -> None:
        self._secret = token_bytes(32)

    def of(self, kind: str, text: str) -> str:
        """Return the pseudonym of a text of this kind."""
        digest = blake2b(f"{kind}/{text}".encode(), key=self._secret, digest_size=8)
        return f"{kind}-{digest.hexdigest()}"

    def of_path(self, path: str) -> str:
        """Return a scope part by part, so that it contains the same others as before."""
        return "/".join(self.of("scope", part) for part in path.split("/")) if path else path


def _redacted(record: DumpRecord, pseudonyms: Pseudonyms) -> DumpRecord:
    if isinstance(record, DumpedJob):
        return DumpedJob(_job(record.job, pseudonyms))
    if isinstance(record, DumpedAttempt):
        attempt = replace(record.attempt, failure=_failure(record.attempt.failure))
        return replace(record, attempt=attempt)
    if isinstance(record, DumpedNote):
        before = None if record.note.before is None else _NOTHING
        return replace(record, note=replace(record.note, text=REDACTED, before=before))
    if isinstance(record, DumpedGroup):
        return DumpedGroup(record.id, _life(record.life))
    if isinstance(record, DumpedEvent):
        return DumpedEvent(_event(record.event, pseudonyms))
    if isinstance(record, DumpedPolicy):
        return replace(record, policy=replace(record.policy, paused=True))
    return record


def _job(job: Job, pseudonyms: Pseudonyms) -> Job:
    replays, key = job.replays, job.ties.key
    return replace(
        job,
        payload=_NOTHING if job.payload else job.payload,
        result=None if job.result is None else b"null",
        failure=_failure(job.failure),
        cancel_reason=REDACTED if job.cancel_reason else "",
        scope=pseudonyms.of_path(job.scope),
        unique=None if job.unique is None else pseudonyms.of("unique", job.unique),
        ties=job.ties if key is None else replace(job.ties, key=pseudonyms.of("key", key)),
        replays=None if replays is None else replace(replays, last_why=REDACTED),
    )


def _event(event: Event, pseudonyms: Pseudonyms) -> Event:
    written = ("actor_name", "device", "client", "ip", "reason")
    return replace(
        event,
        payload=_NOTHING,
        before=None if event.before is None else b"null",
        after=None if event.after is None else b"null",
        diff=None if event.diff is None else b"null",
        scope=pseudonyms.of_path(event.scope),
        key=pseudonyms.of("key", event.key),
        entity_id=pseudonyms.of("entity", event.entity_id),
        **{name: REDACTED for name in written if getattr(event, name)},
    )


def _life(life: GroupLife) -> GroupLife:
    acts = tuple(
        replace(act, text=REDACTED, value=REDACTED if act.verb is GroupVerb.FIX else act.value)
        for act in life.acts
    )
    fixed_in = REDACTED if life.fixed_in else ""
    return replace(life, fingerprint=REDACTED, fixed_in=fixed_in, acts=acts)


def _failure(failure: Failure | None) -> Failure | None:
    return None if failure is None else replace(failure, message=REDACTED, traceback="")
