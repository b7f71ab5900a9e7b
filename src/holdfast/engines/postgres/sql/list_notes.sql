-- The notes on these jobs, in order.
SELECT o.tenant, o.id, o.note
FROM holdfast.notes AS o
JOIN unnest(%(tenants)s::text[], %(ids)s::text[], %(made_us)s::bigint[]) AS n (tenant, id, made_us)
    ON o.tenant = n.tenant AND o.id = n.id AND o.made_us = n.made_us
ORDER BY o.number
