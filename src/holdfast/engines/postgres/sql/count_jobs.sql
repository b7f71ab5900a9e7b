-- How many jobs each queue has in each state.
SELECT c.queue, c.state, sum(c.count)::bigint
FROM (
    SELECT j.queue, j.state, count(*) AS count
    FROM holdfast.jobs AS j
    WHERE true
        AND (%(caller_tenant)s::text IS NULL OR j.tenant = %(caller_tenant)s::text)
        AND (%(caller_scopes)s::text[] IS NULL OR EXISTS (
            SELECT FROM unnest(%(caller_scopes)s::text[]) AS s (scope)
            WHERE j.scope = s.scope OR starts_with(j.scope, s.scope || '/')
        ))
    GROUP BY j.queue, j.state
    UNION ALL
    SELECT d.queue, d.state, count(*)
    FROM holdfast.dead AS d
    WHERE true
        AND (%(caller_tenant)s::text IS NULL OR d.tenant = %(caller_tenant)s::text)
        AND (%(caller_scopes)s::text[] IS NULL OR EXISTS (
            SELECT FROM unnest(%(caller_scopes)s::text[]) AS s (scope)
            WHERE d.scope = s.scope OR starts_with(d.scope, s.scope || '/')
        ))
    GROUP BY d.queue, d.state
    UNION ALL
    SELECT h.queue, h.state, count(*)
    FROM holdfast.history AS h
    WHERE h.finished_at_us
        >= (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us())) - %(remember_us)s::bigint
        AND (%(caller_tenant)s::text IS NULL OR h.tenant = %(caller_tenant)s::text)
        AND (%(caller_scopes)s::text[] IS NULL OR EXISTS (
            SELECT FROM unnest(%(caller_scopes)s::text[]) AS s (scope)
            WHERE h.scope = s.scope OR starts_with(h.scope, s.scope || '/')
        ))
    GROUP BY h.queue, h.state
) AS c
GROUP BY c.queue, c.state
