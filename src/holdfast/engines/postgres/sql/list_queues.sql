-- The queues that have unfinished jobs. Each index is walked from one queue to the next: line 1,
-- line 2, and jobs in no line; few jobs are in flight.
WITH RECURSIVE reached AS NOT MATERIALIZED (
    SELECT j.queue, j.state, j.line
    FROM holdfast.jobs AS j
    WHERE (%(caller_tenant)s::text IS NULL OR j.tenant = %(caller_tenant)s::text)
        AND (%(caller_scopes)s::text[] IS NULL OR EXISTS (
            SELECT FROM unnest(%(caller_scopes)s::text[]) AS s (scope)
            WHERE j.scope = s.scope OR starts_with(j.scope, s.scope || '/')
        ))
),
common AS (
    (
        SELECT r.queue
        FROM reached AS r
        WHERE r.line = 1
        ORDER BY holdfast.queue_number(r.queue)
        LIMIT 1
    )
    UNION ALL
    SELECT n.queue
    FROM common AS c
    CROSS JOIN LATERAL (
        SELECT r.queue
        FROM reached AS r
        WHERE r.line = 1 AND holdfast.queue_number(r.queue) > holdfast.queue_number(c.queue)
        ORDER BY holdfast.queue_number(r.queue)
        LIMIT 1
    ) AS n
),
shared AS (
    (SELECT r.queue FROM reached AS r WHERE r.line = 2 ORDER BY r.queue LIMIT 1)
    UNION ALL
    SELECT n.queue
    FROM shared AS c
    CROSS JOIN LATERAL (
        SELECT r.queue
        FROM reached AS r
        WHERE r.line = 2 AND r.queue > c.queue
        ORDER BY r.queue
        LIMIT 1
    ) AS n
),
aside AS (
    (SELECT r.queue FROM reached AS r WHERE r.line = 0 AND r.state < 2 ORDER BY r.queue LIMIT 1)
    UNION ALL
    SELECT n.queue
    FROM aside AS c
    CROSS JOIN LATERAL (
        SELECT r.queue
        FROM reached AS r
        WHERE r.line = 0 AND r.state < 2 AND r.queue > c.queue
        ORDER BY r.queue
        LIMIT 1
    ) AS n
)
SELECT queue FROM common
UNION
SELECT queue FROM shared
UNION
SELECT queue FROM aside
UNION
SELECT r.queue FROM reached AS r WHERE r.state = 2
