-- Jobs of these names, wherever they are; finished ones while they are remembered.
SELECT
    j.id, j.tenant, j.scope, j.queue, j.task, j.payload, j.priority, j.max_attempts,
    j.created_at_us, j.run_at_us, j.seq, j.state, j.attempt, j.expires_at_us, j.unique_key,
    j.estimated_seconds, j.max_processing_seconds, j.token, j.worker, j.claimed_at_us,
    j.lease_until_us, j.failure, 0, NULL::bytea, j.key, j.key_seq, j.waiting_for, j.stop_requested,
    j.more
FROM holdfast.jobs AS j
JOIN unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    ON j.tenant = n.tenant AND j.id = n.id
UNION ALL
SELECT
    d.id, d.tenant, d.scope, d.queue, d.task, d.payload, d.priority, d.max_attempts,
    d.created_at_us, d.run_at_us, d.seq, d.state, d.attempt, d.expires_at_us, d.unique_key,
    d.estimated_seconds, d.max_processing_seconds, d.token, d.worker, d.claimed_at_us,
    d.lease_until_us, d.failure, d.finished_at_us, NULL::bytea, d.key, d.key_seq, d.waiting_for, d.stop_requested,
    d.more
FROM holdfast.dead AS d
JOIN unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    ON d.tenant = n.tenant AND d.id = n.id
UNION ALL
SELECT
    h.id, h.tenant, h.scope, h.queue, h.task, ''::bytea, h.priority, h.max_attempts,
    h.created_at_us, h.run_at_us, h.seq, h.state, h.attempt, h.expires_at_us, h.unique_key,
    h.estimated_seconds, h.max_processing_seconds, h.token, h.worker, h.claimed_at_us,
    h.lease_until_us, h.failure, h.finished_at_us, h.result, h.key, h.key_seq, h.waiting_for, h.stop_requested,
    h.more
FROM holdfast.history AS h
JOIN unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    ON h.tenant = n.tenant AND h.id = n.id
WHERE h.finished_at_us
    >= (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us())) - %(remember_us)s::bigint
