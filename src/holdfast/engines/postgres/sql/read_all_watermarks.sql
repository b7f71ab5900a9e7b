-- What a claim has to know about the queues that have work, for one that serves too many to name
-- them: as ``read_watermarks`` says it. The index is walked from one queue to the next.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT
        coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us,
        EXISTS (
            SELECT FROM holdfast.fresh_keys AS f WHERE f.place > %(fresh_after)s::bigint
        ) AS fresh,
        coalesce(pg_sequence_last_value('holdfast.places'::regclass), 0) AS last_place
),
heads AS (
    (
        SELECT j.queue, j.priority, j.run_at_us, j.seq
        FROM holdfast.jobs AS j
        WHERE j.line = 1
        ORDER BY holdfast.queue_number(j.queue), j.priority DESC, j.run_at_us, j.seq
        LIMIT 1
    )
    UNION ALL
    SELECT n.queue, n.priority, n.run_at_us, n.seq
    FROM heads AS h
    CROSS JOIN LATERAL (
        SELECT j.queue, j.priority, j.run_at_us, j.seq
        FROM holdfast.jobs AS j
        WHERE j.line = 1 AND holdfast.queue_number(j.queue) > holdfast.queue_number(h.queue)
        ORDER BY holdfast.queue_number(j.queue), j.priority DESC, j.run_at_us, j.seq
        LIMIT 1
    ) AS n
),
watermarks AS (
    SELECT h.queue, h.priority, h.run_at_us, h.seq FROM heads AS h
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
CROSS JOIN (
    SELECT a.queue FROM holdfast.policies AS a WHERE a.limited
    UNION
    SELECT h.queue FROM heads AS h
) AS q
LEFT JOIN holdfast.policies AS p ON p.queue = q.queue
LEFT JOIN holdfast.outages AS o
    ON o.dependency = holdfast.dependency_of(q.queue) AND o.ended_at_us IS NULL
WHERE p.limited OR o.outage IS NOT NULL
