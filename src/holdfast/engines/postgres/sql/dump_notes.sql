-- What people did to the jobs that are kept; from the beginning of time, all there are.
SELECT o.tenant, o.id, o.made_us, o.note
FROM holdfast.notes AS o
WHERE %(since_us)s::bigint <= 0
    -- include of_kept_jobs o
ORDER BY o.tenant, o.id, o.number
