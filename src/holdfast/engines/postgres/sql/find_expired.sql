-- Unclaimed jobs whose time has passed, the oldest first.
SELECT j.tenant, j.id
FROM holdfast.jobs AS j
WHERE j.expires_at_us IS NOT NULL
    AND j.state < 2
    AND j.expires_at_us <= (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()))
    AND (%(caller_tenant)s::text IS NULL OR j.tenant = %(caller_tenant)s::text)
    AND (%(caller_scopes)s::text[] IS NULL OR EXISTS (
        SELECT FROM unnest(%(caller_scopes)s::text[]) AS s (scope)
        WHERE j.scope = s.scope OR starts_with(j.scope, s.scope || '/')
    ))
ORDER BY j.expires_at_us, j.seq
LIMIT %(limit)s::int
