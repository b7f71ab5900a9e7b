-- Leases as they are: when they end, and whether cancellation was requested.
SELECT j.token, j.tenant, j.id, j.lease_until_us, j.stop_requested
FROM holdfast.jobs AS j
JOIN unnest(%(tenants)s::text[], %(ids)s::text[], %(tokens)s::bigint[]) AS o (tenant, id, token)
    ON j.tenant = o.tenant AND j.id = o.id AND j.token = o.token
WHERE j.state + 0 = 2  -- + 0: use the primary key, not the index of jobs in flight
    -- include reach j
