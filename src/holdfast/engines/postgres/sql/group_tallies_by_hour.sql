-- How many dead letters of each group died in each hour since then, from what is counted of them.
SELECT
    h.queue, h.task, h.error_reason, h.status, h.fingerprint, h.hour_us, sum(h.count)::bigint
FROM (
    SELECT g.queue, g.task, g.error_reason, g.status, g.fingerprint, t.hour_us, t.count
    FROM holdfast.dead_groups AS g
    JOIN holdfast.dead_tallies AS t
        ON t.number = g.number AND t.kind = 3 AND t.hour_us >= %(since_us)s::bigint
    WHERE true
        -- include work_filter g
        -- include cause_filter g
    UNION ALL
    SELECT
        any_value(c.queue), any_value(c.task), any_value(c.error_reason), any_value(c.status),
        any_value(c.fingerprint), c.hour_us, sum(c.count)
    FROM holdfast.dead_changes AS c
    WHERE c.hour_us >= %(since_us)s::bigint
        -- include work_filter c
        -- include cause_filter c
    GROUP BY c.number, c.hour_us
) AS h
GROUP BY 1, 2, 3, 4, 5, 6
