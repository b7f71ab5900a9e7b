-- Wait for claims of jobs of these keys that are under way.
SELECT count(*)
FROM (
    SELECT
    FROM holdfast.jobs AS j
    JOIN unnest(%(tenants)s::text[], %(queues)s::text[], %(keys)s::text[]) AS k (tenant, queue, key)
        ON j.tenant = k.tenant AND j.queue = k.queue AND j.key = k.key
    WHERE j.line <> 0
    FOR UPDATE OF j
) AS l
