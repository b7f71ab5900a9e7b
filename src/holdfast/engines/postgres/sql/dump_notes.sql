-- Notes on the jobs that are kept; without a start of time, all.
SELECT o.tenant, o.id, o.made_us, o.note
FROM holdfast.notes AS o
WHERE %(since_us)s::bigint <= 0
    -- include of_kept_jobs o
ORDER BY o.tenant, o.id, o.number
