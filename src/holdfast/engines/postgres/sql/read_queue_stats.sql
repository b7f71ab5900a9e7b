-- For each queue: scheduled jobs, the oldest due time, overdue leases.
SELECT
    j.queue,
    count(*) FILTER (WHERE j.line <> 0 AND j.run_at_us > c.now_us),
    min(j.run_at_us) FILTER (WHERE j.line <> 0 AND j.run_at_us <= c.now_us),
    count(*) FILTER (WHERE j.state = 2 AND j.lease_until_us <= c.now_us)
FROM holdfast.jobs AS j
CROSS JOIN (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us) AS c
GROUP BY j.queue
