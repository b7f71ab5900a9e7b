"""A unit of work: effects that the model decided, written to the tables in a few statements.

A transaction that changes a job holds its row lock, and the lock of its key if it has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from holdfast.engines.postgres import rows
from holdfast.engines.postgres.connection.sansio import (
    Row,
    SansIO,
    Statement,
    execute,
    execute_all,
)
from holdfast.model import folding
from holdfast.model.effects import JobEffect, Purged, job_key
from holdfast.model.history import AttemptRecord, Note, attempt_of, note_of
from holdfast.model.job import FORGETTABLE, Job, State
from holdfast.model.operation import ended_member

from .group_deaths import count_deaths

Name = tuple[str, str]
"""A job's tenant and id."""
Key = tuple[str, str, str]
"""A tenant, a queue and a key in it."""

NEXT_SEQ = 0
"""Stands for the sequence number that the database assigns when the job is written."""


class UnitOfWork:
    """Effects on jobs, folded, and what has to be written because of them."""

    def __init__(self, *, keep_payload: bool = True) -> None:
        """Take whether finished jobs keep their payload, where no policy says otherwise."""
        self._keep_payload = keep_payload
        self._before: dict[Name, Job | None] = {}
        self._after: dict[Name, Job | None] = {}
        self._purged: list[Job] = []
        self._attempts: list[tuple[str, str, int, AttemptRecord]] = []
        self._attempts_of: list[str] = []
        """The queue of each attempt."""
        self._notes: list[tuple[str, str, int, Note]] = []

    def add(self, job: Job | None, effect: JobEffect) -> Job | None:
        """Fold an effect into a job, after the effects that were added before; return it."""
        name = job_key(effect)
        if name in self._after:
            job = self._after[name]
        else:
            self._before[name] = job
        after = folding.apply(job, effect, NEXT_SEQ)
        self._after[name] = after
        if isinstance(effect, Purged):
            if job is not None:
                self._purged.append(job)
            return None
        of = after or job
        if of is not None:
            if (attempt := attempt_of(job, effect)) is not None:
                self._attempts.append((*name, of.created_at_us, attempt))
                self._attempts_of.append(of.queue)
            if (note := note_of(effect)) is not None:
                self._notes.append((*name, of.created_at_us, note))
        return after

    def job(self, name: Name) -> Job | None:
        """Return a job as it is after the effects so far."""
        return self._after[name]

    def write(self) -> SansIO[None]:
        """Write everything, and make the new heads of keys claimable."""
        statements = [*self._deletes(), *self._inserts(), *self._records()]
        answers = yield from execute_all(*statements)
        for statement, written in zip(statements, answers, strict=True):
            if statement.name == "put_history":
                self._drop_payloads(written)
        hot = [job for job in self._after.values() if job is not None and not job.state.finished]
        if hot:
            yield from self._put(hot)
        yield from execute_all(*promote_key_heads(self.keys()))

    def keys(self) -> list[Key]:
        """Return the keys of which a job was changed."""
        jobs = [*self._before.values(), *self._after.values()]
        return keys_of(job for job in jobs if job is not None)

    def queues(self) -> list[str]:
        """Return the queues in which something changed."""
        jobs = [*self._before.values(), *self._after.values()]
        return sorted({job.queue for job in jobs if job is not None})

    def finished(self) -> list[Job]:
        """Return the jobs that are finished now and were not before."""
        return [
            job
            for name, job in self._after.items()
            if job is not None and job.state.finished and not _finished(self._before[name])
        ]

    def _drop_payloads(self, written: Sequence[Row]) -> None:
        """Take the payloads from jobs that were written without."""
        for tenant, job_id, dropped in written:
            job = self._after[tenant, job_id]
            if dropped and job is not None:
                self._after[tenant, job_id] = replace(job, payload=b"")

    def _put(self, jobs: list[Job]) -> SansIO[None]:
        found = yield from execute("put_jobs", **rows.columns(jobs), known=True)
        for tenant, job_id, seq, key_seq in found:
            job = self._after[tenant, job_id]
            if job is not None:
                ties = job.ties
                if ties.key is not None and ties.key_seq != key_seq:
                    ties = replace(ties, key_seq=key_seq)
                self._after[tenant, job_id] = replace(job, seq=seq, ties=ties)

    def _deletes(self) -> Iterable[Statement]:
        """Yield the statements that delete jobs from the tables that they were in."""
        was_hot, was_dead = [], []
        for name, before in self._before.items():
            after = self._after[name]
            if before is None:
                continue
            if not before.state.finished and (after is None or after.state.finished):
                was_hot.append(name)
            elif _is_dead(before) and not (after is not None and _is_dead(after)):
                was_dead.append(name)
        if was_hot:
            yield Statement("drop_jobs", rows.names(was_hot))
        if was_dead:
            yield Statement("drop_dead", rows.names(was_dead))
        if self._purged:
            gone = rows.names((job.tenant, job.id) for job in self._purged)
            yield Statement("drop_history", gone)
            yield Statement("drop_attempts_and_notes", gone)

    def _inserts(self) -> Iterable[Statement]:
        """Yield the statements that write finished jobs."""
        changed = [
            job
            for name, job in self._after.items()
            if job is not None and job.state.finished and job != self._before[name]
        ]
        dead = [job for job in changed if _is_dead(job)]
        done = [job for job in changed if job.state in FORGETTABLE]
        if dead:
            yield Statement("put_dead", {**rows.columns(dead), **rows.failure_columns(dead)})
        died = [job for job in self.finished() if job.state is State.DEAD]
        if died:
            yield count_deaths(died)
        if done:
            yield Statement(
                "put_history", {**rows.columns(done), "keep_payload": self._keep_payload}
            )

    def _records(self) -> Iterable[Statement]:
        """Yield the statements that record attempts, notes and outcomes of operations."""
        if self._attempts:
            yield rows.add_attempts(self._attempts, self._attempts_of)
        if self._notes:
            yield rows.add_notes(self._notes)
        ends = (ended_member(before, self._after[name]) for name, before in self._before.items())
        if counts := Counter(end for end in ends if end is not None):
            yield rows.add_operation_outcomes(counts)


def lock_keys(keys: Sequence[Key]) -> list[Statement]:
    """Return the statements that lock these keys until the end of the transaction."""
    if not keys:
        return []
    return [Statement("lock_keys", {"names": list(map(_lock_name, keys))})]


def try_lock_keys_of(names: Sequence[Name]) -> SansIO[set[Key]]:
    """Lock the keys of these jobs that are free; return the others."""
    found = yield from execute("find_keys", **rows.names(names))
    keys: dict[str, Key] = {
        _lock_name((tenant, queue, key)): (tenant, queue, key) for tenant, queue, key in found
    }
    if not keys:
        return set()
    held = yield from execute("try_lock_keys", names=list(keys))
    return {keys[name] for (name,) in held}


def _lock_name(key: Key) -> str:
    return "/".join(("key", *key))


def lock_keys_of(names: Sequence[Name]) -> SansIO[None]:
    """Lock the keys of these jobs."""
    keys = yield from execute("find_keys", **rows.names(names))
    yield from execute_all(*lock_keys([(tenant, queue, key) for tenant, queue, key in keys]))


def promote_key_heads(keys: Sequence[Key]) -> list[Statement]:
    """Return the statements that make the head of each key claimable, after all else is written."""
    if not keys:
        return []
    columns = key_columns(keys)
    return [Statement("lock_claimable", columns), Statement("promote_key_heads", columns)]


def key_columns(keys: Sequence[Key]) -> dict[str, object]:
    """Return keys as columns."""
    return {
        "tenants": [key[0] for key in keys],
        "queues": [key[1] for key in keys],
        "keys": [key[2] for key in keys],
    }


def keys_of(jobs: Iterable[Job]) -> list[Key]:
    """Return the keys of these jobs, each once."""
    return list(
        dict.fromkeys(
            (job.tenant, job.queue, job.ties.key) for job in jobs if job.ties.key is not None
        )
    )


def _is_dead(job: Job) -> bool:
    return job.state in (State.DEAD, State.ARCHIVED)


def _finished(job: Job | None) -> bool:
    return job is not None and job.state.finished
