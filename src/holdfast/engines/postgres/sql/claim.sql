-- Claim the first due jobs from these watermarks on, under tokens in their order.
-- Queues with limits or an outage are left out, and so is a guessed watermark with jobs before it.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us
),
due AS (
    SELECT d.spot
    FROM clock
    CROSS JOIN unnest(
        %(watermark_queues)s::text[], %(watermark_priorities)s::smallint[],
        %(watermark_run_at_us)s::bigint[], %(watermark_seqs)s::bigint[]
    ) AS l (queue, priority, run_at_us, seq)
    CROSS JOIN LATERAL (
        SELECT j.ctid AS spot, j.priority, j.run_at_us, j.seq
        FROM holdfast.jobs AS j
        WHERE j.line = 1
            AND holdfast.queue_number(j.queue) = holdfast.queue_number(l.queue)
            AND j.queue = l.queue
            AND j.priority = l.priority
            AND j.run_at_us <= clock.now_us
            AND (j.run_at_us, j.seq) >= (l.run_at_us, l.seq)
            AND (%(tasks)s::text[] IS NULL OR j.task = ANY (%(tasks)s::text[]))
            AND (j.expires_at_us IS NULL OR j.expires_at_us > clock.now_us)
            -- include reach j
        ORDER BY j.run_at_us, j.seq
        LIMIT %(limit)s::int
        FOR UPDATE OF j SKIP LOCKED
    ) AS d
    WHERE NOT EXISTS (
        SELECT FROM holdfast.policies AS p WHERE p.queue = l.queue AND p.limited
    )
        AND NOT EXISTS (
            SELECT FROM holdfast.outages AS o
            WHERE o.dependency = holdfast.dependency_of(l.queue) AND o.ended_at_us IS NULL
        )
        AND (NOT %(guessed)s::boolean OR coalesce((
            SELECT (-f.priority, f.run_at_us, f.seq) >= (-l.priority, l.run_at_us, l.seq)
            FROM holdfast.jobs AS f
            WHERE f.line = 1 AND f.queue = l.queue
                AND holdfast.queue_number(f.queue) = holdfast.queue_number(l.queue)
            ORDER BY f.priority DESC, f.run_at_us, f.seq
            LIMIT 1
        ), true))
    ORDER BY d.priority DESC, d.run_at_us, d.seq
    LIMIT %(limit)s::int
),
numbered AS MATERIALIZED (
    SELECT due.spot, nextval('holdfast.tokens') AS token FROM due
)
UPDATE holdfast.jobs AS j
SET state = 2,
    line = 0,
    attempt = j.attempt + 1,
    token = n.token,
    worker = %(worker)s::text,
    nonce = %(nonce)s::bigint,
    claimed_at_us = clock.now_us,
    lease_until_us = clock.now_us + trunc(1000000 * least(
        coalesce(j.estimated_seconds, %(lease_seconds)s::float8),
        3600,
        coalesce(j.max_processing_seconds, %(max_processing_seconds)s::float8)
    ))::bigint
FROM clock, numbered AS n
WHERE j.ctid = n.spot
RETURNING
    j.id, j.tenant, j.scope, j.queue, j.task, j.payload, j.priority, j.max_attempts,
    j.created_at_us, j.run_at_us, j.seq, j.state, j.attempt, j.expires_at_us, j.unique_key,
    j.estimated_seconds, j.max_processing_seconds, j.token, j.worker, j.claimed_at_us,
    j.lease_until_us, j.failure, 0, NULL, j.key, j.key_seq, j.waiting_for, j.stop_requested, j.more
