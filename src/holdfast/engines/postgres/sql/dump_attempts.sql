-- Attempts of the jobs that are kept; from the beginning of time, all there are.
SELECT a.tenant, a.id, a.made_us, a.attempt
FROM holdfast.attempts AS a
WHERE %(since_us)s::bigint <= 0
    -- include of_kept_jobs a
ORDER BY a.tenant, a.id, a.token
