-- Also what belongs to jobs that are kept.
OR EXISTS (
    SELECT FROM holdfast.jobs AS j
    WHERE j.tenant = t.tenant AND j.id = t.id AND j.created_at_us = t.made_us
)
OR EXISTS (
    SELECT FROM holdfast.dead AS d
    WHERE d.tenant = t.tenant AND d.id = t.id AND d.created_at_us = t.made_us
)
OR EXISTS (
    SELECT FROM holdfast.history AS h
    WHERE h.tenant = t.tenant AND h.id = t.id AND h.created_at_us = t.made_us
        AND h.finished_at_us >= %(since_us)s::bigint
)
