-- The finished attempts of these jobs, in order.
SELECT a.tenant, a.id, a.attempt
FROM holdfast.attempts AS a
JOIN unnest(%(tenants)s::text[], %(ids)s::text[], %(made_us)s::bigint[]) AS n (tenant, id, made_us)
    ON a.tenant = n.tenant AND a.id = n.id AND a.made_us = n.made_us
ORDER BY a.token
