-- Lock and return unfinished jobs.
SELECT
    -- include job_columns j
FROM holdfast.jobs AS j
JOIN unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    ON j.tenant = n.tenant AND j.id = n.id
ORDER BY j.tenant, j.id
FOR UPDATE OF j
