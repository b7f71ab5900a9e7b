-- Delete completed and cancelled jobs.
DELETE FROM holdfast.history AS h
USING unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
WHERE h.tenant = n.tenant AND h.id = n.id
