-- Mark jobs on which another one depends: "complete" leaves them to the full settle.
UPDATE holdfast.jobs AS j
SET tied = true
FROM unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
WHERE j.tenant = n.tenant AND j.id = n.id AND NOT j.tied
