-- Fail if one of these jobs has died or finished since it was looked up.
SELECT holdfast.refuse('a job of this id')
WHERE EXISTS (
    SELECT FROM holdfast.dead AS d
    JOIN unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
        ON d.tenant = n.tenant AND d.id = n.id
) OR EXISTS (
    SELECT FROM holdfast.history AS h
    JOIN unnest(%(tenants)s::text[], %(ids)s::text[]) AS n (tenant, id)
        ON h.tenant = n.tenant AND h.id = n.id
    WHERE h.finished_at_us
        >= (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us())) - %(remember_us)s::bigint
)
