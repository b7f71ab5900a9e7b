-- Lock and return dead letters.
SELECT
    -- include dead_columns d
FROM holdfast.dead AS d
JOIN unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    ON d.tenant = n.tenant AND d.id = n.id
ORDER BY d.tenant, d.id
FOR UPDATE OF d
