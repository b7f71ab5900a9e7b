-- Attempts of the jobs that are kept; from the beginning of time, all there are.
SELECT a.tenant, a.id, a.made_us, a.attempt
FROM holdfast.attempts AS a
WHERE %(since_us)s::bigint <= 0
    OR EXISTS (
        SELECT FROM holdfast.jobs AS j
        WHERE j.tenant = a.tenant AND j.id = a.id AND j.created_at_us = a.made_us
    )
    OR EXISTS (
        SELECT FROM holdfast.dead AS d
        WHERE d.tenant = a.tenant AND d.id = a.id AND d.created_at_us = a.made_us
    )
    OR EXISTS (
        SELECT FROM holdfast.history AS h
        WHERE h.tenant = a.tenant AND h.id = a.id AND h.created_at_us = a.made_us
            AND h.finished_at_us >= %(since_us)s::bigint
    )
ORDER BY a.tenant, a.id, a.token
