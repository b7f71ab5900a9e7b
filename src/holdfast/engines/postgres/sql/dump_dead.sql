-- Every dead letter, and those laid aside.
SELECT
    d.id, d.tenant, d.scope, d.queue, d.task, d.payload, d.priority, d.max_attempts,
    d.created_at_us, d.run_at_us, d.seq, d.state, d.attempt, d.expires_at_us, d.unique_key,
    d.estimated_seconds, d.max_processing_seconds, d.token, d.worker, d.claimed_at_us,
    d.lease_until_us, d.failure, d.finished_at_us, NULL::bytea, d.key, d.key_seq, d.waiting_for,
    d.stop_requested, d.more
FROM holdfast.dead AS d
ORDER BY d.seq, d.tenant, d.id
