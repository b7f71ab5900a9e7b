-- Lock and return the jobs that wait for one of these.
SELECT
    -- include job_columns j
FROM holdfast.jobs AS j
JOIN (
    SELECT DISTINCT w.tenant, w.id
    FROM unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    JOIN holdfast.jobs AS w
        ON w.waiting_for IS NOT NULL AND w.waiting_for @> ARRAY[n.id] AND w.tenant = n.tenant
    WHERE w.state = 0 AND w.line = 0  -- true of all that wait: the index excludes the others
) AS w ON w.tenant = j.tenant AND w.id = j.id
WHERE j.state = 0
ORDER BY j.tenant, j.id
FOR UPDATE OF j
