-- For each queue: jobs by state, the oldest due time, and what happened between two moments. It is one
-- statement, so that a job that moves from one table to another meanwhile is counted once.
SELECT
    c.queue, sum(c.pending)::bigint, sum(c.in_flight)::bigint, sum(c.blocked)::bigint,
    sum(c.dead)::bigint, min(c.due_us), sum(c.made)::bigint, sum(c.completed)::bigint,
    sum(c.retried)::bigint, sum(c.died)::bigint
FROM (
    SELECT
        j.queue,
        count(*) FILTER (WHERE j.state = 1) AS pending,
        count(*) FILTER (WHERE j.state = 2) AS in_flight,
        count(*) FILTER (WHERE j.state = 0) AS blocked,
        0 AS dead,
        min(j.run_at_us) FILTER (WHERE j.line <> 0 AND j.run_at_us <= %(now_us)s::bigint) AS due_us,
        count(*) FILTER (
            WHERE j.created_at_us > %(from_us)s::bigint AND j.created_at_us <= %(to_us)s::bigint
        ) AS made,
        0 AS completed,
        0 AS retried,
        0 AS died
    FROM holdfast.jobs AS j
    GROUP BY j.queue
    UNION ALL
    SELECT
        d.queue, 0, 0, 0,
        count(*) FILTER (WHERE d.state = 5),
        NULL,
        count(*) FILTER (
            WHERE d.created_at_us > %(from_us)s::bigint AND d.created_at_us <= %(to_us)s::bigint
        ),
        0, 0,
        count(*) FILTER (
            WHERE d.finished_at_us > %(from_us)s::bigint AND d.finished_at_us <= %(to_us)s::bigint
        )
    FROM holdfast.dead AS d
    GROUP BY d.queue
    UNION ALL
    SELECT
        h.queue, 0, 0, 0, 0, NULL,
        count(*) FILTER (
            WHERE h.created_at_us > %(from_us)s::bigint AND h.created_at_us <= %(to_us)s::bigint
        ),
        count(*) FILTER (WHERE h.state = 3 AND h.finished_at_us <= %(to_us)s::bigint),
        0, 0
    FROM holdfast.history AS h
    WHERE h.finished_at_us > %(from_us)s::bigint
    GROUP BY h.queue
    UNION ALL
    SELECT a.queue, 0, 0, 0, 0, NULL, 0, 0, count(*), 0
    FROM holdfast.attempts AS a
    WHERE a.retried_at_us > %(from_us)s::bigint AND a.retried_at_us <= %(to_us)s::bigint
    GROUP BY a.queue
) AS c
GROUP BY c.queue
