-- Attempts of the jobs that are kept; without a start of time, all.
SELECT a.tenant, a.id, a.made_us, a.attempt
FROM holdfast.attempts AS a
WHERE %(since_us)s::bigint <= 0
    -- include of_kept_jobs a
ORDER BY a.tenant, a.id, a.token
