-- Jobs in flight whose lease has ended since a given time, in the order of the ends.
SELECT j.tenant, j.id
FROM holdfast.jobs AS j
WHERE j.state = 2
    AND j.lease_until_us >= %(since_us)s::bigint
    AND j.lease_until_us <= (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()))
    -- include reach j
ORDER BY j.lease_until_us, j.token
LIMIT %(limit)s::int
