-- Which of these tokens were settled: they are in what happened to their jobs.
SELECT h.token
FROM holdfast.history AS h
JOIN unnest(%(tenants)s::text[], %(ids)s::text[], %(tokens)s::bigint[]) AS o (tenant, id, token)
    ON h.tenant = o.tenant AND h.id = o.id AND h.token = o.token
UNION
SELECT a.token
FROM holdfast.attempts AS a
JOIN unnest(%(tenants)s::text[], %(ids)s::text[], %(tokens)s::bigint[]) AS o (tenant, id, token)
    ON a.tenant = o.tenant AND a.id = o.id AND a.token = o.token
