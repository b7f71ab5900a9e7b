-- Forget the covered jobs of a generation: these, or all.
DELETE FROM holdfast.covered_jobs AS c
WHERE c.table_name = %(table_name)s::text
    AND c.generation = %(generation)s::int
    AND (
        %(tenants)s::text[] IS NULL
        OR (c.tenant, c.id) IN (
            SELECT o.tenant, o.id
            FROM unnest(%(tenants)s::text[], %(ids)s::text[]) AS o (tenant, id)
        )
    )
