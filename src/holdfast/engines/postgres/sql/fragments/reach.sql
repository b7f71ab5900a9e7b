-- Only what the caller reaches.
AND (%(caller_tenant)s::text IS NULL OR t.tenant = %(caller_tenant)s::text)
AND (%(caller_scopes)s::text[] IS NULL OR EXISTS (
    SELECT FROM unnest(%(caller_scopes)s::text[]) AS s (scope)
    WHERE t.scope = s.scope OR starts_with(t.scope, s.scope || '/')
))
