-- How many dead letters that match a filter died in each hour since then, in groups.
SELECT
    d.queue, d.task, d.error_reason, coalesce(d.status, 0), d.fingerprint,
    d.finished_at_us / 3600000000 * 3600000000, count(*)
FROM holdfast.dead AS d
WHERE d.state = 5
    AND d.finished_at_us >= %(since_us)s::bigint
    -- include filter d
    -- include finished_filter d
    -- include failure_filter d
GROUP BY 1, 2, 3, 4, 5, 6
