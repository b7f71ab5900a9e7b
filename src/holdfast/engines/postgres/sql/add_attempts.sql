-- Record finished attempts.
INSERT INTO holdfast.attempts (tenant, id, made_us, token, attempt, queue, retried_at_us)
SELECT n.tenant, n.id, n.made_us, n.token, n.attempt, n.queue, n.retried_at_us
FROM unnest(
    %(tenants)s::text[], %(ids)s::text[], %(made_us)s::bigint[], %(tokens)s::bigint[],
    %(attempts)s::bytea[], %(queues)s::text[], %(retried_us)s::bigint[]
) AS n (tenant, id, made_us, token, attempt, queue, retried_at_us)
