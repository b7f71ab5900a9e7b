-- Jobs that wait for one of these, locked.
SELECT
    j.id, j.tenant, j.scope, j.queue, j.task, j.payload, j.priority, j.max_attempts,
    j.created_at_us, j.run_at_us, j.seq, j.state, j.attempt, j.expires_at_us, j.unique_key,
    j.estimated_seconds, j.max_processing_seconds, j.token, j.worker, j.claimed_at_us,
    j.lease_until_us, j.failure, 0, NULL::bytea, j.key, j.key_seq, j.waiting_for, j.stop_requested,
    j.more
FROM holdfast.jobs AS j
JOIN (
    SELECT DISTINCT w.tenant, w.id
    FROM unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    JOIN holdfast.jobs AS w
        ON w.waiting_for IS NOT NULL AND w.waiting_for @> ARRAY[n.id] AND w.tenant = n.tenant
    WHERE w.state = 0 AND w.line = 0  -- as all that wait have it: so those in line are not looked at
) AS w ON w.tenant = j.tenant AND w.id = j.id
WHERE j.state = 0
ORDER BY j.tenant, j.id
FOR UPDATE OF j
