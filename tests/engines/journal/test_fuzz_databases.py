"""Whatever bytes the SQLite files of a journal have, readers answer or raise a typed error."""

import asyncio
import os
import random
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.history import database
from holdfast.engines.journal.history import store as store_module
from holdfast.engines.journal.readonly_engine import open_readonly
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.model.actions import NoteJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import HoldfastError
from holdfast.model.event import NewEvent
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed, dead
from holdfast.model.search import Filter

SECONDS = float(os.environ.get("HOLDFAST_TEST_FUZZ_SECONDS", "0")) / 8
RUNS = 40
"""By default a number of files, however long a busy machine takes for them."""
FILES = ("cold.sqlite", "events.sqlite")
PAGE = database._PAGE_BYTES
MOST_GROWTH_KIB = 256 * 1024
WRONG = Failure("own", FailureClass.DETERMINISTIC, "bad", "where")
WHO = Attribution("anna", "why", (AuditEntry("job.note", "job", "d0", "anna", "{}", "why"),))


async def furnish(path: Path) -> None:
    engine = await JournalEngine.open(path)
    await engine.enqueue([NewJob(id=f"d{n}", task="t", payload={"n": n}) for n in range(60)])
    jobs = (await engine.claim(queues=["default"], worker="w", limit=60)).jobs
    await engine.settle(
        [dead(job, WRONG) if at % 2 else completed(job, b'"ok"') for at, job in enumerate(jobs)]
    )
    await engine.operate(NoteJobs("a note"), Filter(ids=("d1",)), WHO)
    await engine.append(
        [
            NewEvent(
                event_type="book.opened",
                entity_type="book",
                entity_id=f"b{n}",
                actor_id="42",
                payload={"text": "x" * 200},
            )
            for n in range(60)
        ]
    )
    await engine.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "data"
    asyncio.run(furnish(path))
    for name in FILES:
        assert (path / name).stat().st_size >= 4 * PAGE
    return path


def damaged(data: bytes, choose: random.Random) -> bytes:
    """Return a file with bytes flipped, pages replaced, or its end cut off or grown."""
    out = bytearray(data)
    pages = len(out) // PAGE
    for _change in range(choose.randint(1, 4)):
        kind = choose.randrange(4)
        at = choose.randrange(pages) * PAGE
        if kind == 0:
            for _byte in range(choose.choice([1, 20, 200])):
                out[choose.randrange(len(out))] = choose.randrange(256)
        elif kind == 1:  # where a page tells what it has
            for _byte in range(4):
                out[at + choose.randrange(120)] = choose.randrange(256)
        elif kind == 2:
            other = choose.randrange(pages) * PAGE
            out[at : at + PAGE] = choose.choice(
                [out[other : other + PAGE], choose.randbytes(PAGE), bytes(PAGE)]
            )
        else:
            del out[choose.randrange(len(out)) :]
            out += bytes(max(0, PAGE - len(out)))
            pages = len(out) // PAGE
    return bytes(out)


async def read_all(path: Path) -> None:
    """Ask for everything that is in the files, as commands do while no daemon runs."""
    engine = await open_readonly(LocalDisk(path))
    try:
        await engine.find(Filter(text="bad"))
        await engine.get(["d0", "d1"])
        await engine.history(["d0", "d1"])
        await engine.groups()
        await engine.audited(limit=10)
        await engine.counts()
        await engine.find_events()
    finally:
        await engine.close()


async def own(path: Path) -> None:
    """Open it as its owner does, and finish some work."""
    engine = await JournalEngine.open(path)
    try:
        await engine.enqueue([NewJob(id="new", task="t")])
        [job] = (await engine.claim(queues=["default"], worker="w")).jobs
        await engine.settle([completed(job)])
    finally:
        await engine.close()


def choices(choose: random.Random) -> Iterator[int]:
    until = time.monotonic() + SECONDS
    for _number in range(RUNS if not SECONDS else 1 << 62):
        if SECONDS and time.monotonic() > until:
            return
        yield choose.getrandbits(32)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_read_or_refused_with_a_typed_error(store, tmp_path, name):
    seed = random.SystemRandom().getrandbits(32)
    whole = (store / name).read_bytes()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for one in choices(random.Random(seed)):
        path = tmp_path / "data"
        shutil.copytree(store, path)
        (path / name).write_bytes(damaged(whole, random.Random(one)))
        for use in (read_all, own):
            try:
                asyncio.run(use(path))
            except HoldfastError:
                refused += 1
            except Exception as error:
                problem = f"seed {seed}, file {one}: {error!r} from {use.__name__}"
                raise AssertionError(problem) from error
        shutil.rmtree(path)
    assert refused > 5
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert grown_kib < MOST_GROWTH_KIB, f"seed {seed}"


def test_control_an_error_of_sqlite_that_comes_through_is_found(store, tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "translated", lambda error, *_rest: error)
    with pytest.raises(AssertionError, match="seed"):
        test_a_damaged_file_is_read_or_refused_with_a_typed_error(store, tmp_path, FILES[0])
