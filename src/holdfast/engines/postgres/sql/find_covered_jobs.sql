-- Those of these jobs whose rows a rebuild has written.
SELECT c.tenant, c.id
FROM unnest(%(tenants)s::text[], %(ids)s::text[]) AS o (tenant, id)
JOIN holdfast.covered_jobs AS c
    ON c.table_name = %(table_name)s::text
    AND c.generation = %(generation)s::int
    AND c.tenant = o.tenant
    AND c.id = o.id
