-- The keys of these jobs, in any table.
SELECT j.tenant, j.queue, j.key
FROM holdfast.jobs AS j
JOIN unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    ON j.tenant = n.tenant AND j.id = n.id
WHERE j.key IS NOT NULL
UNION
SELECT d.tenant, d.queue, d.key
FROM holdfast.dead AS d
JOIN unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    ON d.tenant = n.tenant AND d.id = n.id
WHERE d.key IS NOT NULL
