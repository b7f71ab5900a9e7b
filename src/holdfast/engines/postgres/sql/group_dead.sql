-- Dead letters that match a filter, in groups. Counted by tenant, scope and hour first: a DISTINCT over
-- every row would sort them all.
WITH parts AS (
    SELECT
        d.queue, d.task, d.error_reason, coalesce(d.status, 0) AS status, d.fingerprint, d.tenant,
        d.scope, d.finished_at_us / 3600000000 AS hour, min(d.failure_class) AS failure_class,
        count(*) AS count, min(d.finished_at_us) AS first_at_us, max(d.finished_at_us) AS last_at_us
    FROM holdfast.dead AS d
    WHERE d.state = 5
        -- include filter d
        -- include finished_filter d
        -- include failure_filter d
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
)
SELECT
    p.queue, p.task, p.error_reason, p.status, p.fingerprint, min(p.failure_class),
    sum(p.count)::bigint, min(p.first_at_us), max(p.last_at_us), count(DISTINCT p.tenant),
    count(DISTINCT (p.tenant, p.scope)),
    array_agg(p.hour * 3600000000) FILTER (WHERE p.hour >= %(since_hour)s::bigint),
    array_agg(p.count) FILTER (WHERE p.hour >= %(since_hour)s::bigint)
FROM parts AS p
GROUP BY 1, 2, 3, 4, 5
