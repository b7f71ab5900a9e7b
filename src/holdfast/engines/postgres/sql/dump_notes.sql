-- What people did to the jobs that are kept; from the beginning of time, all there are.
SELECT o.tenant, o.id, o.made_us, o.note
FROM holdfast.notes AS o
WHERE %(since_us)s::bigint <= 0
    OR EXISTS (
        SELECT FROM holdfast.jobs AS j
        WHERE j.tenant = o.tenant AND j.id = o.id AND j.created_at_us = o.made_us
    )
    OR EXISTS (
        SELECT FROM holdfast.dead AS d
        WHERE d.tenant = o.tenant AND d.id = o.id AND d.created_at_us = o.made_us
    )
    OR EXISTS (
        SELECT FROM holdfast.history AS h
        WHERE h.tenant = o.tenant AND h.id = o.id AND h.created_at_us = o.made_us
            AND h.finished_at_us >= %(since_us)s::bigint
    )
ORDER BY o.tenant, o.id, o.number
