-- A tenant that has nothing left in a queue has had no turn when it comes back.
DELETE FROM holdfast.turns AS t
USING unnest(%(queues)s::text[], %(tenants)s::text[]) AS n (queue, tenant)
WHERE t.queue = n.queue
    AND t.tenant = n.tenant
    AND NOT EXISTS (
        SELECT FROM holdfast.jobs AS j WHERE j.tenant = t.tenant AND j.queue = t.queue
    )
