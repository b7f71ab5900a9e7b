-- Groups of dead letters by class, from what is counted of them and the changes since.
WITH fresh AS MATERIALIZED (
    SELECT c.number, c.tenant, c.scope, sum(c.count) AS count
    FROM holdfast.dead_changes AS c
    WHERE true
        -- include work_filter c
        -- include cause_filter c
    GROUP BY c.number, c.tenant, c.scope
),
counted AS (
    SELECT g.number, g.count, g.tenants, g.scopes
    FROM holdfast.dead_groups AS g
    WHERE true
        -- include work_filter g
        -- include cause_filter g
    UNION ALL
    SELECT
        f.number, f.count, 0,
        (coalesce(t.count, 0) + f.count > 0)::int - (coalesce(t.count, 0) > 0)::int
    FROM fresh AS f
    LEFT JOIN holdfast.dead_tallies AS t
        ON t.number = f.number AND t.kind = 0 AND t.hour_us = 0
            AND t.tenant = f.tenant AND t.scope = f.scope
    UNION ALL
    SELECT
        f.number, 0,
        (coalesce(t.count, 0) + f.count > 0)::int - (coalesce(t.count, 0) > 0)::int,
        0
    FROM (
        SELECT s.number, s.tenant, sum(s.count) AS count FROM fresh AS s GROUP BY 1, 2
    ) AS f
    LEFT JOIN holdfast.dead_tallies AS t
        ON t.number = f.number AND t.kind = 1 AND t.hour_us = 0
            AND t.tenant = f.tenant AND t.scope = ''
),
found AS (
    SELECT
        c.number, sum(c.count)::bigint AS count, sum(c.tenants)::bigint AS tenants,
        sum(c.scopes)::bigint AS scopes
    FROM counted AS c
    GROUP BY c.number
    HAVING sum(c.count) > 0
)
SELECT
    first.queue, first.task, first.error_reason, coalesce(first.status, 0), first.fingerprint,
    first.failure_class, f.count, first.finished_at_us, last.finished_at_us, f.tenants, f.scopes
FROM found AS f
CROSS JOIN LATERAL (
    SELECT d.*
    FROM holdfast.dead AS d
    WHERE d.state = 5
        AND holdfast.group_number(
            d.queue, d.task, d.error_reason, d.status, d.fingerprint, d.failure_class
        ) = f.number
    ORDER BY d.finished_at_us
    LIMIT 1
) AS first
CROSS JOIN LATERAL (
    SELECT d.finished_at_us
    FROM holdfast.dead AS d
    WHERE d.state = 5
        AND holdfast.group_number(
            d.queue, d.task, d.error_reason, d.status, d.fingerprint, d.failure_class
        ) = f.number
    ORDER BY d.finished_at_us DESC
    LIMIT 1
) AS last
