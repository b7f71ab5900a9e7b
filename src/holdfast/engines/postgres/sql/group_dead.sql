-- Dead letters that match a filter, in groups. Counted by tenant and scope first, in the order of an
-- index: a DISTINCT over every row would sort them all.
WITH parts AS (
    SELECT
        d.queue, d.task, d.error_reason, d.status, d.fingerprint, d.tenant, d.scope,
        min(d.failure_class) AS failure_class, count(*) AS count,
        min(d.finished_at_us) AS first_at_us, max(d.finished_at_us) AS last_at_us
    FROM holdfast.dead AS d
    WHERE d.state = 5
        -- include filter d
        -- include finished_filter d
        -- include failure_filter d
    GROUP BY 1, 2, 3, 4, 5, 6, 7
)
SELECT
    p.queue, p.task, p.error_reason, coalesce(p.status, 0), p.fingerprint, min(p.failure_class),
    sum(p.count)::bigint, min(p.first_at_us), max(p.last_at_us), count(DISTINCT p.tenant),
    count(*)
FROM parts AS p
GROUP BY 1, 2, 3, 4, 5
