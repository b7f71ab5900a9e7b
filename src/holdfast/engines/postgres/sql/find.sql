-- Jobs that match a filter, the oldest first, after this place.
SELECT f.*
FROM (
    (
        SELECT
            -- include job_columns j
        FROM holdfast.jobs AS j
        WHERE %(unfinished)s::boolean
            -- include filter j
            AND (NOT %(failed)s::boolean OR j.failure IS NOT NULL)
            AND (
                %(after_us)s::bigint IS NULL
                OR (j.created_at_us, j.tenant, j.id)
                    > (%(after_us)s::bigint, %(after_tenant)s::text, %(after_id)s::text)
            )
        ORDER BY j.created_at_us, j.tenant, j.id
        LIMIT %(limit)s::int
    )
    UNION ALL
    (
        SELECT
            -- include dead_columns d
        FROM holdfast.dead AS d
        WHERE %(dead)s::boolean
            -- include filter d
            -- include finished_filter d
            -- include failure_filter d
            AND (
                %(after_us)s::bigint IS NULL
                OR (d.created_at_us, d.tenant, d.id)
                    > (%(after_us)s::bigint, %(after_tenant)s::text, %(after_id)s::text)
            )
        ORDER BY d.created_at_us, d.tenant, d.id
        LIMIT %(limit)s::int
    )
    UNION ALL
    (
        SELECT
            -- include history_columns h
        FROM holdfast.history AS h
        WHERE %(done)s::boolean
            AND h.finished_at_us
            >= (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us())) - %(remember_us)s::bigint
            -- include filter h
            -- include finished_filter h
            AND (NOT %(failed)s::boolean OR h.failure IS NOT NULL)
            AND (
                %(after_us)s::bigint IS NULL
                OR (h.created_at_us, h.tenant, h.id)
                    > (%(after_us)s::bigint, %(after_tenant)s::text, %(after_id)s::text)
            )
        ORDER BY h.created_at_us, h.tenant, h.id
        LIMIT %(limit)s::int
    )
) AS f
ORDER BY f.created_at_us, f.tenant, f.id
LIMIT %(limit)s::int
