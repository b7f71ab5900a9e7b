-- Unfinished jobs that have one of these unique keys.
SELECT
    -- include job_columns j
FROM holdfast.jobs AS j
JOIN unnest(%(tenants)s::text[], %(queues)s::text[], %(uniques)s::text[])
    AS u (tenant, queue, unique_key)
    ON j.tenant = u.tenant AND j.queue = u.queue AND j.unique_key = u.unique_key
