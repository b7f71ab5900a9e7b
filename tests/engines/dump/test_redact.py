"""A dump to be shown to others: nothing of what work is about is in it."""

import io

import msgspec

from holdfast.engines.dump.format import (
    DumpedJob,
    write_dump,
)
from holdfast.engines.dump.reading import read_dump
from holdfast.engines.dump.redact import redacted
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.restore import restore
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.actions import CancelJobs, NoteJobs, ReplayJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.failure import Failure
from holdfast.model.job import Edit, Job, NewJob
from holdfast.model.outcome import completed, dead, retry
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter
from holdfast.testing import SimDisk, VirtualClock

CANARY = "canary-7f3a"
WHY = Attribution(
    "ops", f"seen {CANARY}", (AuditEntry("replay", "job", "a", "ops", reason=CANARY),)
)
FAILURE = Failure.of("upstream_5xx", f"503 for {CANARY}")
TRACED = msgspec.structs.replace(FAILURE, traceback=f"raise Error({CANARY!r})")


async def full_of_secrets(engine: MemoryEngine) -> None:
    payload = {"password": CANARY, "nested": [CANARY]}
    await engine.enqueue(
        [NewJob(task="t", id=one, payload=payload, queue=f"q{one}") for one in "abcdef"]
    )
    queues = [f"q{one}" for one in "abcde"]
    jobs = {job.id: job for job in (await engine.claim(queues=queues, worker="w", limit=9)).jobs}
    await engine.settle(
        [
            completed(jobs["a"], msgspec.json.encode(CANARY)),
            retry(jobs["b"], TRACED, 5.0),
            *(dead(jobs[one], TRACED) for one in "cde"),
        ]
    )
    await engine.operate(ReplayJobs(), Filter(ids=("c",)), WHY)
    await engine.operate(NoteJobs(f"it is {CANARY}"), Filter(ids=("d",)), WHY)
    [job] = (await engine.find(Filter(ids=("d",)))).jobs
    await engine.edit(job, Edit(payload={"other": CANARY}), WHY)
    await engine.operate(CancelJobs(), Filter(ids=("f",)), WHY)
    await engine.set_policy("qc", QueuePolicy(max_in_flight=3), WHY)


async def dumped(*, redact: bool) -> io.BytesIO:
    engine = MemoryEngine(clock=VirtualClock())
    await full_of_secrets(engine)
    file = io.BytesIO()
    await write_dump(file, redacted(engine.dump()) if redact else engine.dump())
    await engine.close()
    return file


def everything_in(file: io.BytesIO) -> str:
    return "\n".join(repr(record) for batch in read_dump(file) for record in batch)


async def test_a_redacted_dump_has_nothing_in_it_that_applications_or_people_wrote():
    found = everything_in(await dumped(redact=True))
    assert CANARY not in found
    for name in ("'a'", "'qc'", "upstream_5xx", "'ops'"):
        assert name in found, "names stay"


async def test_control_a_dump_that_is_not_redacted_has_it_everywhere():
    assert everything_in(await dumped(redact=False)).count(CANARY) >= 15


async def test_nothing_of_a_redacted_dump_runs_when_it_is_loaded():
    disk = SimDisk()
    restore(disk, read_dump(await dumped(redact=True)))

    engine = await JournalEngine.open(
        disk, options=JournalOptions(inline=True), clock=VirtualClock()
    )
    counts = await engine.counts()
    assert {queue: one.pending for queue, one in counts.items() if one.pending} == {
        "qb": 1,
        "qc": 1,
    }
    queues = [f"q{one}" for one in "abcdef"]
    assert not (await engine.claim(queues=queues, worker="w", limit=9)).jobs
    policies = await engine.policies()
    assert policies["qc"] == QueuePolicy(max_in_flight=3, paused=True)
    assert await engine.validate() == []
    await engine.close()


async def redacted_jobs() -> list[Job]:
    engine = MemoryEngine(clock=VirtualClock())
    scope = f"customer:{CANARY}/order:7"
    await engine.enqueue(
        [
            NewJob(task="t", id="a", key=CANARY, unique=f"u-{CANARY}", scope=scope),
            NewJob(task="t", id="b", key=CANARY, unique="other", scope=f"customer:{CANARY}"),
            NewJob(task="t", id="c", key="another", scope="customer:9"),
            NewJob(task="t", id="d"),
        ]
    )
    records = [one async for batch in redacted(engine.dump()) for one in batch]
    assert CANARY not in repr(records)
    await engine.close()
    return [one.job for one in records if isinstance(one, DumpedJob)]


async def test_keys_scopes_and_unique_keys_become_the_same_pseudonyms_everywhere_in_one_dump():
    a, b, c, d = await redacted_jobs()
    assert a.ties.key == b.ties.key != c.ties.key
    assert a.scope.startswith(f"{b.scope}/"), "a scope still contains the other"
    assert a.unique != b.unique
    assert (d.ties.key, d.scope, d.unique) == (None, "", None)
    other, *_ = await redacted_jobs()
    assert other.ties.key != a.ties.key, "another dump cannot be matched with this one"


async def test_jobs_of_one_key_still_run_in_order_after_a_redacted_dump_is_loaded():
    engine = MemoryEngine(clock=VirtualClock())
    jobs = [NewJob(task="t", id=one, key=CANARY) for one in ("z", "m", "a")]
    await engine.enqueue(jobs)
    copy = MemoryEngine(clock=VirtualClock())
    copy.load([one async for batch in redacted(engine.dump()) for one in batch])
    await copy.set_policy("default", None, WHY)
    ran = []
    while claimed := (await copy.claim(queues=["default"], worker="w", limit=9)).jobs:
        ran += [job.id for job in claimed]
        await copy.settle([completed(job) for job in claimed])
    assert ran == ["z", "m", "a"]
