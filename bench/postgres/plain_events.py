"""The same rows from plain psycopg: what the server does at best for events and their projection.

No checks, no leases, no retries, no order within a key: an outbox as people write one.
"""

import os
import time
from datetime import UTC, datetime

import msgspec
import psycopg

from holdfast.model.event import NewEvent
from holdfast.model.ids import RANDOM_BYTES, rising_uuid7s

from .event_app import renamed
from .measuring import Meter, Rate
from .side import BULK, url

BATCH = 500
_EVENTS = """COPY holdfast.chronicle_events (
    event_id, tenant, event_type, version, payload, scope, key, entity_type, entity_id,
    actor_type, actor_id, actor_name, occurred_at, created_at, position, fanout_version
) FROM STDIN"""
_JOBS = """COPY holdfast.jobs (
    created_at_us, run_at_us, seq, max_attempts, priority, state, line, tied, tenant, id, scope,
    queue, task, payload, key, key_seq
) FROM STDIN"""
_TAKE = """SELECT j.tenant, j.id, e.entity_id, e.payload, e.occurred_at
FROM (
    SELECT tenant, id, payload FROM holdfast.jobs WHERE seq > %s ORDER BY seq LIMIT %s
    FOR UPDATE SKIP LOCKED
) AS j
JOIN holdfast.chronicle_events AS e
    ON e.event_id = (convert_from(j.payload, 'UTF8')::json ->> 'event_id')::uuid
    AND e.tenant = j.tenant"""
_READ = "SELECT book, renames FROM plain_books WHERE book = ANY (%s) ORDER BY book FOR UPDATE"
_WRITE = """INSERT INTO plain_books (book, title, renames, renamed_at)
SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::timestamptz[])
ON CONFLICT (book) DO UPDATE
SET title = excluded.title, renames = excluded.renames, renamed_at = excluded.renamed_at"""
_DONE = """WITH gone AS (
    DELETE FROM holdfast.jobs AS j USING unnest(%s::text[], %s::text[]) AS n (tenant, id)
    WHERE j.tenant = n.tenant AND j.id = n.id
    RETURNING j.*
)
INSERT INTO holdfast.history (
    created_at_us, run_at_us, seq, token, claimed_at_us, lease_until_us, finished_at_us,
    attempt, max_attempts, priority, state, stop_requested, tenant, id, scope, queue, task,
    worker, key, key_seq, payload
)
SELECT
    created_at_us, run_at_us, seq, seq, run_at_us, run_at_us, holdfast.now_us(), 1, max_attempts,
    priority, 3, false, tenant, id, scope, queue, task, 'plain', key, key_seq, payload
FROM gone"""
_TABLE = """CREATE TABLE IF NOT EXISTS plain_books (
    book text COLLATE "C" PRIMARY KEY, title text, renames bigint, renamed_at timestamptz
)"""


def append(count: int, keys: int) -> Rate:
    """Copy so many events and as many jobs, a thousand a commit."""
    with psycopg.connect(url(), autocommit=True) as connection:
        meter, start = Meter([os.getpid()]), time.perf_counter()
        for first in range(0, count, BULK):
            _append(connection, first, renamed(first, BULK, keys))
        return meter.rate(count, time.perf_counter() - start)


def _append(connection: psycopg.Connection, first: int, events: list[NewEvent]) -> None:
    now_us = time.time_ns() // 1_000
    now = datetime.fromtimestamp(now_us / 1e6, UTC)
    ids = list(rising_uuid7s(now_us, os.urandom(RANDOM_BYTES * len(events))))
    encode = msgspec.json.encode
    with connection.transaction(), connection.cursor() as cursor:
        with cursor.copy(_EVENTS) as rows:
            for number, (event_id, one) in enumerate(zip(ids, events, strict=True)):
                key = f"book:{one.entity_id}"
                rows.write_row(
                    (
                        *(event_id, "default", one.event_type, 1, encode(one.payload).decode()),
                        *("", key, "book", one.entity_id, "user", one.actor_id, one.actor_name),
                        *(now, now, first + number, 1),
                    )
                )
        with cursor.copy(_JOBS) as rows:
            for number, (event_id, one) in enumerate(zip(ids, events, strict=True)):
                seq = first + number + 1
                payload = f'{{"event_id":"{event_id}"}}'.encode()
                rows.write_row(
                    (
                        *(now_us, now_us, seq, 25, 0, 1, 0, True, "default", f"plain:{event_id}"),
                        *("", "plain", "plain", payload, f"book:{one.entity_id}", seq),
                    )
                )


def project(count: int) -> Rate:
    """Project so many events, in batches that are one transaction each."""
    with psycopg.connect(url(), autocommit=True) as connection:
        connection.execute(_TABLE)
        connection.execute("TRUNCATE plain_books")
        connection.execute("CREATE INDEX plain_line ON holdfast.jobs (seq)")
        meter, start = Meter([os.getpid()]), time.perf_counter()
        done = 0
        while done < count:
            done += _project(connection, done)
        rate = meter.rate(count, time.perf_counter() - start)
        connection.execute("DROP INDEX holdfast.plain_line")
        return rate


def _project(connection: psycopg.Connection, after: int) -> int:
    with connection.transaction():
        taken = connection.execute(_TAKE, (after, BATCH)).fetchall()
        books = sorted({row[2] for row in taken})
        renames: dict[str, int] = dict(connection.execute(_READ, (books,)).fetchall())
        rows: dict[str, tuple[object, ...]] = {}
        for _tenant, _id, book, payload, renamed_at in taken:
            renames[book] = renames.get(book, 0) + 1
            rows[book] = (book, payload["title"], renames[book], renamed_at)
        columns = [list(column) for column in zip(*(rows[book] for book in books), strict=True)]
        connection.execute(_WRITE, columns)
        connection.execute(_DONE, ([row[0] for row in taken], [row[1] for row in taken]))
    return len(taken)
