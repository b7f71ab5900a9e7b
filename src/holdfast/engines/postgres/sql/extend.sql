-- Renew leases from now: never past max_processing_seconds, and never to end sooner.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us
)
UPDATE holdfast.jobs AS j
SET lease_until_us = greatest(
    j.lease_until_us,
    least(
        clock.now_us + %(lease_us)s::bigint,
        j.claimed_at_us + trunc(
            1000000 * coalesce(
                j.max_processing_seconds,
                %(max_processing_seconds)s::float8,
                o.cap_seconds,
                %(default_cap_seconds)s::float8
            )
        )::bigint
    )
)
FROM clock
CROSS JOIN (
    SELECT DISTINCT o.tenant, o.id, o.token, o.cap_seconds
    FROM unnest(
        %(tenants)s::text[], %(ids)s::text[], %(tokens)s::bigint[], %(caps_seconds)s::float8[]
    ) AS o (tenant, id, token, cap_seconds)
    ORDER BY 1, 2
) AS o
WHERE j.tenant = o.tenant AND j.id = o.id AND j.token = o.token
    AND j.state + 0 = 2  -- + 0: use the primary key, not the index of jobs in flight
    -- include reach j
RETURNING j.token, j.tenant, j.id, j.lease_until_us, j.stop_requested
