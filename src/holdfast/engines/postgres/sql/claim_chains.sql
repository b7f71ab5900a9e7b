-- Claim as "claim" does, and behind each job others of its key, as far as there is room for them.
-- A chain ends before the first job that cannot be claimed or that another transaction has locked.
-- Jobs behind the first of a chain have a negative nonce.
-- Queues with limits or an outage are left out, and so is a guessed watermark with jobs before it.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us
),
due AS MATERIALIZED (
    SELECT d.*
    FROM clock
    CROSS JOIN unnest(
        %(watermark_queues)s::text[], %(watermark_priorities)s::smallint[],
        %(watermark_run_at_us)s::bigint[], %(watermark_seqs)s::bigint[]
    ) AS l (queue, priority, run_at_us, seq)
    CROSS JOIN LATERAL (
        SELECT
            j.ctid AS spot, j.priority, j.run_at_us, j.seq, j.tenant, j.queue, j.task, j.key,
            j.key_seq, j.failure IS NULL AS chains
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
heads AS MATERIALIZED (
    SELECT
        due.*,
        row_number() OVER (ORDER BY due.priority DESC, due.run_at_us, due.seq) AS place,
        (
            SELECT min(d.key_seq) FROM holdfast.dead AS d
            WHERE d.tenant = due.tenant AND d.queue = due.queue AND d.key = due.key
                AND d.state = 5 AND d.key_seq > due.key_seq
        ) AS dead_seq
    FROM due
),
room AS MATERIALIZED (
    SELECT %(limit)s::int - count(*) AS jobs FROM heads
),
behind AS MATERIALIZED (
    SELECT b.spot, b.key_seq, h.place
    FROM (SELECT heads.* FROM heads ORDER BY heads.place) AS h
    CROSS JOIN LATERAL (
        SELECT o.spot, o.key_seq
        FROM (
            SELECT f.spot, f.key_seq, bool_and(f.fits) OVER (ORDER BY f.key_seq) AS whole
            FROM (
                SELECT
                    j.ctid AS spot, j.key_seq,
                    j.state = 1 AND j.task = h.task AND j.failure IS NULL
                        AND j.run_at_us <= clock.now_us
                        AND (j.expires_at_us IS NULL OR j.expires_at_us > clock.now_us)
                        AND (h.dead_seq IS NULL OR j.key_seq < h.dead_seq)
                        -- include reach j
                        AS fits
                FROM clock
                CROSS JOIN holdfast.jobs AS j
                WHERE j.tenant = h.tenant AND j.queue = h.queue AND j.key = h.key
                    AND j.key_seq > h.key_seq
                ORDER BY j.key_seq
                LIMIT least(%(chain)s::int - 1, (SELECT room.jobs FROM room))
            ) AS f
        ) AS o
        WHERE o.whole
        ORDER BY o.key_seq
    ) AS b
    WHERE h.chains AND h.key IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM holdfast.policies AS p WHERE p.queue = h.queue AND NOT p.ordered
        )
    LIMIT (SELECT room.jobs FROM room)
),
locked AS MATERIALIZED (
    SELECT j.ctid AS spot
    FROM behind AS b
    JOIN holdfast.jobs AS j ON j.ctid = b.spot
    WHERE j.state = 1
    FOR UPDATE OF j SKIP LOCKED
),
taken AS MATERIALIZED (
    SELECT h.spot, h.place, h.key_seq, true AS first FROM heads AS h
    UNION ALL
    SELECT b.spot, b.place, b.key_seq, false
    FROM (
        SELECT
            b.*,
            bool_and(l.spot IS NOT NULL) OVER (PARTITION BY b.place ORDER BY b.key_seq) AS whole
        FROM behind AS b
        LEFT JOIN locked AS l ON l.spot = b.spot
    ) AS b
    WHERE b.whole
),
numbered AS MATERIALIZED (
    SELECT t.spot, t.first, nextval('holdfast.tokens') AS token
    FROM (SELECT taken.* FROM taken ORDER BY taken.place, taken.key_seq) AS t
)
UPDATE holdfast.jobs AS j
SET state = 2,
    line = 0,
    attempt = j.attempt + 1,
    token = n.token,
    worker = %(worker)s::text,
    nonce = CASE WHEN n.first THEN %(nonce)s::bigint ELSE -%(nonce)s::bigint END,
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
