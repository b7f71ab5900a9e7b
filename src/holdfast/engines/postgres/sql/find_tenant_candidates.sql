-- The first due jobs of each tenant in these queues, in which tenants take turns.
WITH RECURSIVE tenants AS (
    SELECT q.queue, f.tenant
    FROM unnest(%(queues)s::text[]) AS q (queue)
    CROSS JOIN LATERAL (
        SELECT j.tenant
        FROM holdfast.jobs AS j
        WHERE j.line = 2 AND j.queue = q.queue
        ORDER BY j.tenant
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT t.queue, f.tenant
    FROM tenants AS t
    CROSS JOIN LATERAL (
        SELECT j.tenant
        FROM holdfast.jobs AS j
        WHERE j.line = 2 AND j.queue = t.queue AND j.tenant > t.tenant
        ORDER BY j.tenant
        LIMIT 1
    ) AS f
)
SELECT d.*
FROM tenants AS t
CROSS JOIN LATERAL (
    SELECT
        -- include job_columns j
    FROM holdfast.jobs AS j
    WHERE j.line = 2
        AND j.queue = t.queue
        AND j.tenant = t.tenant
        AND j.run_at_us <= %(at_us)s::bigint
        AND (%(tasks)s::text[] IS NULL OR j.task = ANY (%(tasks)s::text[]))
        AND (j.expires_at_us IS NULL OR j.expires_at_us > %(at_us)s::bigint)
        -- include reach j
    ORDER BY j.priority DESC, j.run_at_us, j.seq
    LIMIT %(limit)s::int
) AS d
