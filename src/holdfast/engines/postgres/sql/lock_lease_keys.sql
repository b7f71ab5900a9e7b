-- Lock the keys of these jobs, which are unfinished, always in the same order; return them.
SELECT k.tenant, k.queue, k.key, pg_advisory_xact_lock(k.number) IS NULL
FROM (
    SELECT DISTINCT
        holdfast.lock_number('key/' || j.tenant || '/' || j.queue || '/' || j.key) AS number,
        j.tenant, j.queue, j.key
    FROM unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
    -- OFFSET 0: one look by the primary key for each, whatever the planner knows of the table.
    CROSS JOIN LATERAL (
        SELECT j.tenant, j.queue, j.key
        FROM holdfast.jobs AS j
        WHERE j.tenant = n.tenant AND j.id = n.id
        OFFSET 0
    ) AS j
    WHERE j.key IS NOT NULL  -- not inside: the index of keys would be scanned for it
    ORDER BY 1
) AS k
