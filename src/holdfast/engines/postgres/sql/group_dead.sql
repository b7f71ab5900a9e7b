-- Dead letters that match a filter, in groups.
SELECT
    d.queue, d.error_reason, d.failure_class, d.fingerprint,
    d.finished_at_us / 3600000000 * 3600000000, count(*), min(d.finished_at_us),
    max(d.finished_at_us), count(DISTINCT d.tenant), count(DISTINCT (d.tenant, d.scope))
FROM holdfast.dead AS d
WHERE d.state = 5
    -- include filter d
    -- include finished_filter d
    -- include failure_filter d
GROUP BY 1, 2, 3, 4, 5
