-- What a claim has to know about these queues: the time; the first job of each priority, due or
-- not; the policies with limits, with how far their rates are spent; the outages; and whether keys
-- have to be lined up first, and up to which place that is known.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT
        coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us,
        EXISTS (
            SELECT FROM holdfast.fresh_keys AS f
            WHERE f.queue = ANY (%(queues)s::text[]) AND f.place > %(fresh_after)s::bigint
        ) AS fresh,
        coalesce(pg_sequence_last_value('holdfast.places'::regclass), 0) AS last_place
),
watermarks AS (
    SELECT q.queue, f.priority, f.run_at_us, f.seq
    FROM unnest(%(queues)s::text[]) AS q (queue)
    CROSS JOIN LATERAL (
        SELECT j.priority, j.run_at_us, j.seq
        FROM holdfast.jobs AS j
        WHERE j.line = 1 AND j.queue = q.queue
            AND holdfast.queue_number(j.queue) = holdfast.queue_number(q.queue)
        ORDER BY j.priority DESC, j.run_at_us, j.seq
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT l.queue, f.priority, f.run_at_us, f.seq
    FROM watermarks AS l
    CROSS JOIN LATERAL (
        SELECT j.priority, j.run_at_us, j.seq
        FROM holdfast.jobs AS j
        WHERE j.line = 1 AND j.queue = l.queue AND j.priority < l.priority
            AND holdfast.queue_number(j.queue) = holdfast.queue_number(l.queue)
        ORDER BY j.priority DESC, j.run_at_us, j.seq
        LIMIT 1
    ) AS f
)
SELECT
    c.now_us, l.queue, l.priority, l.run_at_us, l.seq,
    NULL::smallint AS line, NULL::bigint AS spent_until_us, NULL::bytea AS policy,
    NULL::bytea AS outage, c.fresh, c.last_place
FROM clock AS c
LEFT JOIN watermarks AS l ON true
UNION ALL
SELECT
    c.now_us, q.queue, NULL, NULL, NULL,
    coalesce(p.line, 1::smallint), coalesce(p.spent_until_us, 0), p.policy, o.outage, c.fresh, c.last_place
FROM clock AS c
CROSS JOIN unnest(%(queues)s::text[]) AS q (queue)
LEFT JOIN holdfast.policies AS p ON p.queue = q.queue
LEFT JOIN holdfast.outages AS o
    ON o.dependency = holdfast.dependency_of(q.queue) AND o.ended_at_us IS NULL
WHERE p.limited OR o.outage IS NOT NULL
