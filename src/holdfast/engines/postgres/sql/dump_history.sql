-- Completed and cancelled jobs that finished since this moment.
SELECT
    h.id, h.tenant, h.scope, h.queue, h.task, ''::bytea, h.priority, h.max_attempts,
    h.created_at_us, h.run_at_us, h.seq, h.state, h.attempt, h.expires_at_us, h.unique_key,
    h.estimated_seconds, h.max_processing_seconds, h.token, h.worker, h.claimed_at_us,
    h.lease_until_us, h.failure, h.finished_at_us, h.result, h.key, h.key_seq, h.waiting_for,
    h.stop_requested, h.more
FROM holdfast.history AS h
WHERE h.finished_at_us >= %(since_us)s::bigint
ORDER BY h.seq, h.tenant, h.id
