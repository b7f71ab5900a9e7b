-- Delete unfinished jobs.
DELETE FROM holdfast.jobs AS j
USING unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
WHERE j.tenant = n.tenant AND j.id = n.id
