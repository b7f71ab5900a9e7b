-- Delete the turns of tenants that have no jobs left in a queue: they start anew when they return.
DELETE FROM holdfast.turns AS t
USING unnest(%(queues)s::text[], %(tenants)s::text[]) AS n (queue, tenant)
WHERE t.queue = n.queue
    AND t.tenant = n.tenant
    -- Each uses an index of its own: line 2, line 1, no line, in flight.
    AND NOT EXISTS (
        SELECT FROM holdfast.jobs AS j
        WHERE j.line = 2 AND j.queue = t.queue AND j.tenant = t.tenant
    )
    AND NOT EXISTS (
        SELECT FROM holdfast.jobs AS j
        WHERE j.line = 1 AND j.queue = t.queue AND j.tenant = t.tenant
            AND holdfast.queue_number(j.queue) = holdfast.queue_number(t.queue)
    )
    AND NOT EXISTS (
        SELECT FROM holdfast.jobs AS j
        WHERE j.line = 0 AND j.state < 2 AND j.queue = t.queue AND j.tenant = t.tenant
    )
    AND NOT EXISTS (
        SELECT FROM holdfast.jobs AS j
        WHERE j.state = 2 AND j.queue = t.queue AND j.tenant = t.tenant
    )
