-- Unfinished jobs that have one of these unique keys.
SELECT
    j.id, j.tenant, j.scope, j.queue, j.task, j.payload, j.priority, j.max_attempts,
    j.created_at_us, j.run_at_us, j.seq, j.state, j.attempt, j.expires_at_us, j.unique_key,
    j.estimated_seconds, j.max_processing_seconds, j.token, j.worker, j.claimed_at_us,
    j.lease_until_us, j.failure, 0, NULL::bytea, j.key, j.key_seq, j.waiting_for, j.stop_requested,
    j.more
FROM holdfast.jobs AS j
JOIN unnest(%(tenants)s::text[], %(queues)s::text[], %(uniques)s::text[])
    AS u (tenant, queue, unique_key)
    ON j.tenant = u.tenant AND j.queue = u.queue AND j.unique_key = u.unique_key
