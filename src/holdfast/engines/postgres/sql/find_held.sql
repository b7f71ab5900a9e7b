-- What this worker holds.
SELECT
    j.id, j.tenant, j.scope, j.queue, j.task, j.payload, j.priority, j.max_attempts,
    j.created_at_us, j.run_at_us, j.seq, j.state, j.attempt, j.expires_at_us, j.unique_key,
    j.estimated_seconds, j.max_processing_seconds, j.token, j.worker, j.claimed_at_us,
    j.lease_until_us, j.failure, 0, NULL::bytea, j.key, j.key_seq, j.waiting_for, j.stop_requested,
    j.more
FROM holdfast.jobs AS j
WHERE j.state = 2 AND j.worker = %(worker)s::text
