-- Unclaimed jobs that have expired, the oldest first.
SELECT j.tenant, j.id
FROM holdfast.jobs AS j
WHERE j.expires_at_us IS NOT NULL
    AND j.state < 2
    AND j.expires_at_us <= (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()))
    -- include reach j
ORDER BY j.expires_at_us, j.seq
LIMIT %(limit)s::int
