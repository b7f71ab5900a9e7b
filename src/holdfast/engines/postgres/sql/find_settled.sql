-- How the attempts with these tokens ended: the state in history, or the attempt.
SELECT h.token, h.state, NULL::bytea
FROM holdfast.history AS h
JOIN unnest(%(tenants)s::text[], %(ids)s::text[], %(tokens)s::bigint[]) AS o (tenant, id, token)
    ON h.tenant = o.tenant AND h.id = o.id AND h.token = o.token
UNION ALL
SELECT a.token, NULL::smallint, a.attempt
FROM holdfast.attempts AS a
JOIN unnest(%(tenants)s::text[], %(ids)s::text[], %(tokens)s::bigint[]) AS o (tenant, id, token)
    ON a.tenant = o.tenant AND a.id = o.id AND a.token = o.token
