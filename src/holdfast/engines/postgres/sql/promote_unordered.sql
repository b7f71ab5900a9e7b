-- Make the pending jobs of these keys claimable whose queue has no order within a key: it had one when
-- they were enqueued.
UPDATE holdfast.jobs AS j
SET line = p.line
FROM unnest(%(tenants)s::text[], %(queues)s::text[], %(keys)s::text[]) AS k (tenant, queue, key)
JOIN holdfast.policies AS p ON p.queue = k.queue AND NOT p.ordered
WHERE j.tenant = k.tenant AND j.queue = k.queue AND j.key = k.key AND j.state = 1 AND j.line = 0
