-- Look at some attempts after this place, and forget those of jobs that are gone. Return how many were
-- looked at, how many are gone, and the last place.
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
        AND NOT EXISTS (
            SELECT FROM holdfast.jobs AS j
            WHERE j.tenant = s.tenant AND j.id = s.id AND j.created_at_us = s.made_us
        )
        AND NOT EXISTS (
            SELECT FROM holdfast.dead AS d
            WHERE d.tenant = s.tenant AND d.id = s.id AND d.created_at_us = s.made_us
        )
        AND NOT EXISTS (
            SELECT FROM holdfast.history AS h
            WHERE h.tenant = s.tenant AND h.id = s.id AND h.created_at_us = s.made_us
                AND h.finished_at_us
                    >= (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us())) - %(remember_us)s::bigint
        )
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
