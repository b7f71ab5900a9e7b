-- Dead letters of these names, locked.
SELECT
    d.id, d.tenant, d.scope, d.queue, d.task, d.payload, d.priority, d.max_attempts,
    d.created_at_us, d.run_at_us, d.seq, d.state, d.attempt, d.expires_at_us, d.unique_key,
    d.estimated_seconds, d.max_processing_seconds, d.token, d.worker, d.claimed_at_us,
    d.lease_until_us, d.failure, d.finished_at_us, NULL::bytea, d.key, d.key_seq, d.waiting_for, d.stop_requested,
    d.more
FROM holdfast.dead AS d
JOIN unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    ON d.tenant = n.tenant AND d.id = n.id
ORDER BY d.tenant, d.id
FOR UPDATE OF d
