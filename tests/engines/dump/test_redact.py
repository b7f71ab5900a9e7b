"""A dump to be shown to others: nothing of what work is about is in it."""

import io

import msgspec

from holdfast.engines.dump.format import read_dump, write_dump
from holdfast.engines.dump.redact import redacted
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.restore import restore
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.actions import CancelJobs, NoteJobs, ReplayJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.failure import Failure
from holdfast.model.job import Edit, NewJob
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
