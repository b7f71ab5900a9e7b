-- Remember jobs whose rows a rebuild has written.
INSERT INTO holdfast.covered_jobs (table_name, generation, tenant, id)
SELECT %(table_name)s::text, %(generation)s::int, o.tenant, o.id
FROM unnest(%(tenants)s::text[], %(ids)s::text[]) AS o (tenant, id)
ON CONFLICT DO NOTHING
