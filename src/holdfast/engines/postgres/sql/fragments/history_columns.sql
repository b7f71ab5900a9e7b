-- The columns of a completed or cancelled job, see rows.job_of.
t.id, t.tenant, t.scope, t.queue, t.task, coalesce(t.payload, ''::bytea), t.priority, t.max_attempts,
t.created_at_us, t.run_at_us, t.seq, t.state, t.attempt, t.expires_at_us, t.unique_key,
t.estimated_seconds, t.max_processing_seconds, t.token, t.worker, t.claimed_at_us,
t.lease_until_us, t.failure, t.finished_at_us, t.result, t.key, t.key_seq, t.waiting_for,
t.stop_requested, t.more
