-- Jobs in flight under these tokens, locked.
SELECT
    j.id, j.tenant, j.scope, j.queue, j.task, j.payload, j.priority, j.max_attempts,
    j.created_at_us, j.run_at_us, j.seq, j.state, j.attempt, j.expires_at_us, j.unique_key,
    j.estimated_seconds, j.max_processing_seconds, j.token, j.worker, j.claimed_at_us,
    j.lease_until_us, j.failure, 0, NULL::bytea, j.key, j.key_seq, j.waiting_for, j.stop_requested,
    j.more
FROM holdfast.jobs AS j
JOIN unnest(%(tenants)s::text[], %(ids)s::text[], %(tokens)s::bigint[]) AS o (tenant, id, token)
    ON j.tenant = o.tenant AND j.id = o.id AND j.token = o.token
WHERE j.state + 0 = 2  -- + 0: by its name, not by walking everything in flight
    AND (%(caller_tenant)s::text IS NULL OR j.tenant = %(caller_tenant)s::text)
    AND (%(caller_scopes)s::text[] IS NULL OR EXISTS (
        SELECT FROM unnest(%(caller_scopes)s::text[]) AS s (scope)
        WHERE j.scope = s.scope OR starts_with(j.scope, s.scope || '/')
    ))
ORDER BY j.tenant, j.id
FOR UPDATE OF j
