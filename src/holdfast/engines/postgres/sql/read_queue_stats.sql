-- For each queue: scheduled jobs, jobs held by a dead head, the oldest due time, overdue leases.
SELECT
    j.queue,
    count(*) FILTER (WHERE j.line <> 0 AND j.run_at_us > c.now_us),
    count(*) FILTER (WHERE j.key IS NOT NULL AND coalesce(p.ordered, true) AND EXISTS (
        SELECT FROM holdfast.dead AS d
        WHERE d.tenant = j.tenant AND d.queue = j.queue AND d.key = j.key
            AND d.state = 5 AND d.key_seq < j.key_seq
    )),
    min(j.run_at_us) FILTER (WHERE j.line <> 0 AND j.run_at_us <= c.now_us),
    count(*) FILTER (WHERE j.state = 2 AND j.lease_until_us <= c.now_us)
FROM holdfast.jobs AS j
CROSS JOIN (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us) AS c
LEFT JOIN holdfast.policies AS p ON p.queue = j.queue
GROUP BY j.queue
