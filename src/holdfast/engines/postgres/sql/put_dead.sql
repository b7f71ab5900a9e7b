-- Insert or update dead letters.
INSERT INTO holdfast.dead AS d (
    created_at_us, run_at_us, seq, token, claimed_at_us, lease_until_us, finished_at_us, attempt,
    max_attempts, priority, state, stop_requested, tenant, id, scope, queue, task, worker, payload,
    error_reason, failure_class, fingerprint, message, expires_at_us, unique_key,
    estimated_seconds, max_processing_seconds, key, key_seq, waiting_for, failure, replay_run, more,
    status
)
SELECT
    n.created_at_us, n.run_at_us, n.seq, n.token, n.claimed_at_us, n.lease_until_us,
    n.finished_at_us, n.attempt, n.max_attempts, n.priority, n.state, n.stop_requested, n.tenant,
    n.id, n.scope, n.queue, n.task, n.worker, n.payload, n.error_reason, n.failure_class,
    n.fingerprint, n.message, n.expires_at_us, n.unique_key, n.estimated_seconds,
    n.max_processing_seconds, n.key, n.key_seq, string_to_array(n.waits, E'\x1f'), n.failure,
    n.replay_run, n.more, n.status
FROM unnest(
    %(created_at_us)s::bigint[], %(run_at_us)s::bigint[], %(seqs)s::bigint[],
    %(tokens)s::bigint[], %(claimed_at_us)s::bigint[], %(lease_until_us)s::bigint[],
    %(finished_at_us)s::bigint[], %(attempts)s::int[], %(max_attempts)s::int[],
    %(priorities)s::smallint[], %(states)s::smallint[], %(stops)s::boolean[],
    %(tenants)s::text[], %(ids)s::text[], %(scopes)s::text[], %(queues)s::text[],
    %(tasks)s::text[], %(workers)s::text[], %(payloads)s::bytea[], %(error_reasons)s::text[],
    %(failure_classes)s::text[], %(fingerprints)s::text[], %(messages)s::text[],
    %(expires_at_us)s::bigint[], %(uniques)s::text[], %(estimated_seconds)s::float8[],
    %(max_processing_seconds)s::float8[], %(keys)s::text[], %(key_seqs)s::bigint[],
    %(waits)s::text[], %(failures)s::bytea[], %(replay_runs)s::text[], %(mores)s::bytea[],
    %(statuses)s::int[]
) AS n (
    created_at_us, run_at_us, seq, token, claimed_at_us, lease_until_us, finished_at_us, attempt,
    max_attempts, priority, state, stop_requested, tenant, id, scope, queue, task, worker, payload,
    error_reason, failure_class, fingerprint, message, expires_at_us, unique_key,
    estimated_seconds, max_processing_seconds, key, key_seq, waits, failure, replay_run, more,
    status
)
ON CONFLICT (tenant, id) DO UPDATE SET
    run_at_us = excluded.run_at_us,
    max_attempts = excluded.max_attempts,
    priority = excluded.priority,
    seq = excluded.seq,
    state = excluded.state,
    task = excluded.task,
    payload = excluded.payload,
    more = excluded.more
