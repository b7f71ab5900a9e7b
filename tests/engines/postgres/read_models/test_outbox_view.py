"""The jobs of a projection, as a view in the words of an outbox."""

import psycopg
import pytest

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.actions import ArchiveJobs, CancelJobs, ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed, dead, retry
from holdfast.model.search import Filter

COLUMNS = [
    *("id", "status", "attempts", "next_retry_at", "error_reason", "last_error", "owner"),
    *("lease_until", "processing_started_at", "created_at", "processed_at", "replay_count"),
    *("last_replayed_at", "last_replayed_by", "last_replayed_reason"),
]
OPS = Attribution("ops", "fix applied")
WRONG = Failure.of("mapping_error", "no column 'isbn'")


async def fill(engine):
    names = ("done", "failed", "replayed", "archived", "retried", "processing", "pending")
    await engine.enqueue(
        [NewJob(task="t", id=name, queue="books") for name in (*names, "cancelled")]
        + [NewJob(task="t", id=queue, queue=queue) for queue in ("books.g2", "books_g2", "xbooks")]
    )
    claim = await engine.claim(queues=["books"], worker="w1", limit=6)
    held = {job.id: job for job in claim.jobs}
    await engine.settle(
        [
            completed(held["done"]),
            *(dead(held[name], WRONG) for name in ("failed", "replayed", "archived")),
            retry(held["retried"], Failure.of("timeout", "took 3 s"), delay_seconds=60),
        ]
    )
    await engine.operate(ReplayJobs(fixed="mapping"), Filter(ids=("replayed",)), OPS)
    await engine.operate(ArchiveJobs(), Filter(ids=("archived",)), OPS)
    await engine.operate(CancelJobs(), Filter(ids=("cancelled",)), OPS)


@pytest.mark.parametrize("server", ["server18", "server16"])
async def test_it_has_the_jobs_of_every_generation_in_these_columns_and_words(request, server):
    with request.getfixturevalue(server).fresh() as url:
        engine = await PostgresEngine.open(url)
        try:
            await engine.read_models.publish_outbox("books")
            await fill(engine)
            await engine.read_models.publish_outbox("books")
        finally:
            await engine.close()
        with psycopg.connect(url) as connection:
            cursor = connection.execute("SELECT * FROM books_outbox_events")
            assert [column.name for column in cursor.description or ()] == COLUMNS
            rows = {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in cursor}
    assert {name: (row["status"], row["attempts"]) for name, row in rows.items()} == {
        "done": ("done", 1),
        "failed": ("failed", 1),
        "replayed": ("pending", 1),
        "retried": ("pending", 1),
        "processing": ("processing", 1),
        "pending": ("pending", 0),
        "books.g2": ("pending", 0),
    }
    assert (rows["failed"]["error_reason"], rows["failed"]["last_error"]) == (
        "mapping_error",
        "no column 'isbn'",
    )
    assert rows["retried"]["error_reason"] == "timeout"
    assert rows["retried"]["next_retry_at"] > rows["retried"]["created_at"]
    assert rows["processing"]["owner"] == "w1"
    assert rows["processing"]["lease_until"] > rows["processing"]["processing_started_at"]
    assert rows["done"]["processed_at"] >= rows["done"]["created_at"]
    replayed = rows["replayed"]
    assert replayed["last_replayed_at"] is not None
    assert [replayed[name] for name in COLUMNS[11:] if name != "last_replayed_at"] == [
        1,
        "ops",
        "fix applied (fixed: mapping)",
    ]
    assert rows["pending"]["replay_count"] == 0
