-- Insert or update unfinished jobs. A seq of 0 stands for the next number.
INSERT INTO holdfast.jobs AS j (
    created_at_us, run_at_us, seq, token, claimed_at_us, lease_until_us, attempt, max_attempts,
    priority, state, line, tied, stop_requested, tenant, id, scope, queue, task, worker, payload,
    expires_at_us, unique_key, estimated_seconds, max_processing_seconds, key, key_seq,
    waiting_for, failure, replay_run, more
)
SELECT
    n.created_at_us, n.run_at_us, n.place, n.token, n.claimed_at_us, n.lease_until_us, n.attempt,
    n.max_attempts, n.priority, n.state,
    CASE
        WHEN n.state = 1 AND (n.key IS NULL OR NOT coalesce(p.ordered, true))
            THEN coalesce(p.line, 1)
        ELSE 0
    END,
    n.key IS NOT NULL OR n.replay_run IS NOT NULL, n.stop_requested, n.tenant, n.id, n.scope, n.queue, n.task, n.worker,
    n.payload, n.expires_at_us, n.unique_key, n.estimated_seconds, n.max_processing_seconds,
    n.key, CASE WHEN n.key_seq = 0 THEN n.place ELSE n.key_seq END,
    string_to_array(n.waits, E'\x1f'), n.failure, n.replay_run, n.more
FROM (
    SELECT
        u.*,
        CASE WHEN u.seq = 0 THEN nextval('holdfast.places') ELSE u.seq END AS place
    FROM (
        SELECT *
        FROM unnest(
            %(created_at_us)s::bigint[], %(run_at_us)s::bigint[], %(seqs)s::bigint[],
            %(tokens)s::bigint[], %(claimed_at_us)s::bigint[], %(lease_until_us)s::bigint[],
            %(attempts)s::int[], %(max_attempts)s::int[], %(priorities)s::smallint[],
            %(states)s::smallint[], %(stops)s::boolean[], %(tenants)s::text[], %(ids)s::text[],
            %(scopes)s::text[], %(queues)s::text[], %(tasks)s::text[], %(workers)s::text[],
            %(payloads)s::bytea[], %(expires_at_us)s::bigint[], %(uniques)s::text[],
            %(estimated_seconds)s::float8[], %(max_processing_seconds)s::float8[],
            %(keys)s::text[], %(key_seqs)s::bigint[], %(waits)s::text[], %(failures)s::bytea[],
            %(replay_runs)s::text[], %(mores)s::bytea[]
        ) WITH ORDINALITY AS t (
            created_at_us, run_at_us, seq, token, claimed_at_us, lease_until_us, attempt,
            max_attempts, priority, state, stop_requested, tenant, id, scope, queue, task, worker,
            payload, expires_at_us, unique_key, estimated_seconds, max_processing_seconds, key,
            key_seq, waits, failure, replay_run, more, number
        )
        ORDER BY t.number
    ) AS u
) AS n
LEFT JOIN holdfast.policies AS p ON p.queue = n.queue
ORDER BY n.number
ON CONFLICT (tenant, id) DO UPDATE SET
    run_at_us = excluded.run_at_us,
    seq = excluded.seq,
    token = excluded.token,
    claimed_at_us = excluded.claimed_at_us,
    lease_until_us = excluded.lease_until_us,
    attempt = excluded.attempt,
    max_attempts = excluded.max_attempts,
    priority = excluded.priority,
    state = excluded.state,
    line = excluded.line,
    stop_requested = excluded.stop_requested,
    task = excluded.task,
    worker = excluded.worker,
    payload = excluded.payload,
    expires_at_us = excluded.expires_at_us,
    waiting_for = excluded.waiting_for,
    failure = excluded.failure,
    replay_run = excluded.replay_run,
    more = excluded.more
WHERE %(known)s::boolean OR holdfast.refuse('a job of this id') IS NULL
RETURNING j.tenant, j.id, j.seq, j.key_seq
