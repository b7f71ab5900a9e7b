-- Check some attempts after this place, and delete those of jobs that are not kept any more. Return
-- how many were checked, how many were deleted, and the last place.
WITH page AS MATERIALIZED (
    SELECT p.ctid AS spot, p.tenant, p.id, p.made_us, p.token
    FROM holdfast.attempts AS p
    WHERE (p.tenant, p.id, p.token) > (%(tenant)s::text, %(id)s::text, %(number)s::bigint)
    ORDER BY p.tenant, p.id, p.token
    LIMIT %(limit)s::int
),
gone AS (
    DELETE FROM holdfast.attempts AS p
    USING page AS s
    WHERE p.ctid = s.spot
        -- include of_forgotten_jobs s
    RETURNING 1
),
last AS (
    SELECT s.tenant, s.id, s.token
    FROM page AS s
    ORDER BY s.tenant DESC, s.id DESC, s.token DESC
    LIMIT 1
)
SELECT (SELECT count(*) FROM page), (SELECT count(*) FROM gone), l.tenant, l.id, l.token
FROM (VALUES (1)) AS one (row)
LEFT JOIN last AS l ON true
