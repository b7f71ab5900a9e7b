-- Only what belongs to jobs that are no longer kept.
AND NOT EXISTS (
    SELECT FROM holdfast.jobs AS j
    WHERE j.tenant = t.tenant AND j.id = t.id AND j.created_at_us = t.made_us
)
AND NOT EXISTS (
    SELECT FROM holdfast.dead AS d
    WHERE d.tenant = t.tenant AND d.id = t.id AND d.created_at_us = t.made_us
)
AND NOT EXISTS (
    SELECT FROM holdfast.history AS h
    WHERE h.tenant = t.tenant AND h.id = t.id AND h.created_at_us = t.made_us
        AND h.finished_at_us
            >= (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us())) - %(remember_us)s::bigint
)
