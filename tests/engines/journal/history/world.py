"""Jobs that follow the real lifecycle, and the effects that a history is fed with."""

from holdfast.engines.embedded.history import AppliedEffect
from holdfast.engines.journal.history.store import SqliteHistory
from holdfast.model import audit as audit_model
from holdfast.model import effects as fx
from holdfast.model import folding, lifecycle
from holdfast.model.failure import Failure
from holdfast.model.history import AttemptRecord, Note, attempt_of, completing_attempt, note_of
from holdfast.model.job import Edit, Job, NewJob, State, admit
from holdfast.model.search import HOUR_US

FAILURE = Failure.of("timeout", "TimeoutError: no answer from 10.0.0.1 after 30 s")
Name = tuple[str, str]


class World:
    """Every job as the memory engine would have it, and all applied effects in order.

    ``evicted`` is for an engine that has dropped finished jobs from memory: effects on them come
    without the job.
    """

    def __init__(self, *, evicted: bool = True) -> None:
        self.seq = 0
        self.now_us = 1_000 * HOUR_US
        self.jobs: dict[Name, Job] = {}
        self.recorded: list[AppliedEffect] = []
        self.attempts: dict[Name, list[AttemptRecord]] = {}
        self.notes: dict[Name, list[Note]] = {}
        self.head = audit_model.AuditHead()
        self.evicted = evicted

    def happen(self, effect: fx.JobEffect) -> Job | None:
        self.seq += 1
        name = fx.job_key(effect)
        old = self.jobs.get(name)
        seen = None if self.evicted and old is not None and old.state.finished else old
        job = folding.apply(seen, effect, self.seq)
        self.recorded.append(AppliedEffect(self.seq, effect, seen, job))
        if isinstance(effect, fx.Purged):
            self.drop(name)
            return None
        if isinstance(effect, fx.Enqueued):
            self.attempts.pop(name, None)
            self.notes.pop(name, None)
        if job is not None:
            self.jobs[name] = job
        done = isinstance(effect, fx.Completed) and job is not None
        attempt = completing_attempt(job) if done and job else attempt_of(old, effect)
        note = note_of(effect)
        if attempt is not None:
            self.attempts.setdefault(name, []).append(attempt)
        if note is not None:
            self.notes.setdefault(name, []).append(note)
        return self.jobs[name]

    def drop(self, name: Name) -> None:
        for kept in (self.jobs, self.attempts, self.notes):
            kept.pop(name, None)

    def pass_time(self, us: int = 1_000) -> int:
        self.now_us += us
        return self.now_us

    # --- effects -----------------------------------------------------------------------------

    def enqueue(self, job_id: str, **asked: object) -> Job:
        new = NewJob(task=str(asked.pop("task", "t")), id=job_id, **asked)  # type: ignore[arg-type]
        now_us = self.pass_time()
        return self.must(fx.Enqueued(now_us, admit(new, job_id, now_us, self.seq + 1)))

    def claim(self, job: Job, worker: str = "w1") -> Job:
        terms = lifecycle.LeaseTerms(self.pass_time(), 60, 600)
        return self.must(lifecycle.claim(job, self.seq + 1, worker, terms))

    def complete(self, job: Job, result: bytes | None = None) -> Job:
        return self.must(fx.Completed(self.pass_time(), job.tenant, job.id, result))

    def cancel(self, job: Job, by: str = "") -> Job:
        return self.must(fx.Cancelled(self.pass_time(), job.tenant, job.id, "not wanted", by))

    def retry(self, job: Job, failure: Failure = FAILURE) -> Job:
        now_us = self.pass_time()
        return self.must(fx.Retried(now_us, job.tenant, job.id, now_us, failure))

    def die(self, job: Job, failure: Failure = FAILURE) -> Job:
        return self.must(fx.Died(self.pass_time(), job.tenant, job.id, failure, job.losses))

    def replay(self, job: Job, run: str = "") -> Job:
        return self.must(lifecycle.replay(job, self.pass_time(), "ann", "fixed it", run=run))

    def archive(self, job: Job) -> Job:
        return self.must(lifecycle.archive(job, self.pass_time(), "ann", "will not fix"))

    def restore(self, job: Job) -> Job:
        return self.must(lifecycle.restore(job, self.pass_time(), "bob", "will fix"))

    def edit(self, job: Job, payload: bytes = b'{"edited":1}') -> Job:
        return self.must(
            lifecycle.edit(job, self.pass_time(), Edit(payload=payload), "bob", "typo")
        )

    def note(self, job: Job, text: str = "looked at it") -> None:
        self.happen(fx.Noted(self.pass_time(), job.tenant, job.id, "ann", text))

    def purge(self, job: Job) -> None:
        self.happen(lifecycle.purge(job, self.pass_time()))

    def audit(self, action: str = "replay") -> None:
        entry = audit_model.AuditEntry(action, "job", "j", "ann", '{"n": 1}', "because", "default")
        record = audit_model.chain(self.head, entry, self.pass_time())
        self.head = audit_model.head_of(record)
        self.seq += 1
        self.recorded.append(AppliedEffect(self.seq, fx.Audited(self.now_us, record), None, None))

    def must(self, effect: fx.Effect) -> Job:
        job = self.happen(effect)  # type: ignore[arg-type]
        assert job is not None
        return job

    def dead(self, job_id: str, failure: Failure = FAILURE, **asked: object) -> Job:
        return self.die(self.claim(self.enqueue(job_id, **asked)), failure)

    def done(self, job_id: str, **asked: object) -> Job:
        return self.complete(self.claim(self.enqueue(job_id, **asked)), b'{"ok":1}')

    # --- expectations ------------------------------------------------------------------------

    def finished(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state.finished]

    def feed(self, store: SqliteHistory) -> None:
        """Feed all effects; the store skips those that it has."""
        store.feed(self.recorded, self.seq)


def forget_all(store: SqliteHistory, before_us: int) -> dict[tuple[str, str, State], int]:
    """Forget until nothing is left to forget."""
    gone: dict[tuple[str, str, State], int] = {}
    after: int | None = 0
    while after is not None:
        went, after = store.forget(before_us, after=after)
        for key, count in went.items():
            gone[key] = gone.get(key, 0) + count
    return gone
