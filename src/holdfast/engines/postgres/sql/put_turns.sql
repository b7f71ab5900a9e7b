-- Record the last turn of each tenant, and how far the rates are spent.
WITH spent AS (
    UPDATE holdfast.policies AS p
    SET spent_until_us = s.spent_until_us
    FROM unnest(%(spent_queues)s::text[], %(spent_until_us)s::bigint[]) AS s (queue, spent_until_us)
    WHERE p.queue = s.queue
)
INSERT INTO holdfast.turns AS t (queue, tenant, token)
SELECT n.queue, n.tenant, n.token
FROM unnest(%(queues)s::text[], %(tenants)s::text[], %(tokens)s::bigint[]) AS n (queue, tenant, token)
JOIN holdfast.policies AS p ON p.queue = n.queue
ON CONFLICT (queue, tenant) DO UPDATE SET token = excluded.token
