-- The jobs of these keys that are in flight, if they were claimed as a chain and the keys have an
-- order: see "claim_chains".
SELECT
    -- include job_columns j
FROM unnest(%(tenants)s::text[], %(queues)s::text[], %(keys)s::text[]) AS k (tenant, queue, key)
JOIN holdfast.jobs AS j
    ON j.tenant = k.tenant AND j.queue = k.queue AND j.key = k.key AND j.state = 2
LEFT JOIN holdfast.policies AS p ON p.queue = k.queue
WHERE coalesce(p.ordered, true)
    AND EXISTS (
        SELECT FROM holdfast.jobs AS o
        WHERE o.tenant = k.tenant AND o.queue = k.queue AND o.key = k.key AND o.state = 2
            AND o.nonce < 0
    )
ORDER BY j.key_seq
