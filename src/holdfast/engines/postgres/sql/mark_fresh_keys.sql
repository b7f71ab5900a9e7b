-- Have these keys lined up after the commit.
INSERT INTO holdfast.fresh_keys (place, queue, tenant, key)
SELECT (SELECT holdfast.next_places()), k.queue, k.tenant, k.key
FROM unnest(%(tenants)s::text[], %(queues)s::text[], %(keys)s::text[]) AS k (tenant, queue, key)
