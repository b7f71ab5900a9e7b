-- Wait for claims of jobs of these keys that are under way.
SELECT count(*)
FROM unnest(%(tenants)s::text[], %(queues)s::text[], %(keys)s::text[]) AS k (tenant, queue, key)
-- One look by the index of busy keys for each, whatever the planner knows.
CROSS JOIN LATERAL (
    SELECT
    FROM holdfast.jobs AS j
    WHERE j.tenant = k.tenant AND j.queue = k.queue AND j.key = k.key
        AND (j.line <> 0 OR j.state = 2) AND j.line + 0 <> 0
    FOR UPDATE OF j
) AS l
