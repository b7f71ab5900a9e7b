-- These jobs, from any table; finished ones while they are kept.
SELECT
    -- include job_columns j
FROM holdfast.jobs AS j
JOIN unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    ON j.tenant = n.tenant AND j.id = n.id
UNION ALL
SELECT
    -- include dead_columns d
FROM holdfast.dead AS d
JOIN unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    ON d.tenant = n.tenant AND d.id = n.id
UNION ALL
SELECT
    -- include history_columns h
FROM holdfast.history AS h
JOIN unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    ON h.tenant = n.tenant AND h.id = n.id
WHERE h.finished_at_us
    >= (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us())) - %(remember_us)s::bigint
