-- The columns of an unfinished job, see rows.job_of.
t.id, t.tenant, t.scope, t.queue, t.task, t.payload, t.priority, t.max_attempts,
t.created_at_us, t.run_at_us, t.seq, t.state, t.attempt, t.expires_at_us, t.unique_key,
t.estimated_seconds, t.max_processing_seconds, t.token, t.worker, t.claimed_at_us,
t.lease_until_us, t.failure, 0 AS finished_at_us, NULL::bytea, t.key, t.key_seq, t.waiting_for, t.stop_requested,
t.more
