-- Load dead letters.
COPY holdfast.dead (
    created_at_us, run_at_us, seq, token, claimed_at_us, lease_until_us, attempt,
    max_attempts, priority, state, stop_requested, tenant, id, scope, queue, task, worker,
    payload, expires_at_us, unique_key,
    estimated_seconds, max_processing_seconds, key, key_seq, waiting_for, failure, replay_run, more,
    finished_at_us, error_reason, failure_class, fingerprint, message, status
) FROM STDIN
