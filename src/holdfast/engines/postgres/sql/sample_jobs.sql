-- For each queue: jobs by state, the oldest due time, and how many of these jobs were made lately.
SELECT
    j.queue,
    count(*) FILTER (WHERE j.state = 1),
    count(*) FILTER (WHERE j.state = 2),
    count(*) FILTER (WHERE j.state = 0),
    min(j.run_at_us) FILTER (WHERE j.line <> 0 AND j.run_at_us <= %(now_us)s::bigint),
    count(*) FILTER (
        WHERE j.created_at_us > %(from_us)s::bigint AND j.created_at_us <= %(to_us)s::bigint
    )
FROM holdfast.jobs AS j
GROUP BY j.queue
