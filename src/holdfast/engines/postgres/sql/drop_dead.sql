-- Delete dead letters.
DELETE FROM holdfast.dead AS d
USING unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
WHERE d.tenant = n.tenant AND d.id = n.id
