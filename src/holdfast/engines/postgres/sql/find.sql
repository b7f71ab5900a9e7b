-- Jobs that match a filter, after this place, in the order that its name says.
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
                %(after_number)s::bigint IS NULL
                OR (j.{job_by}, j.tenant, j.id)
                    {beyond} (%(after_number)s::bigint, %(after_tenant)s::text, %(after_id)s::text)
            )
        ORDER BY j.{job_by} {order}, j.tenant {order}, j.id {order}
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
                %(after_number)s::bigint IS NULL
                OR (d.{by}, d.tenant, d.id)
                    {beyond} (%(after_number)s::bigint, %(after_tenant)s::text, %(after_id)s::text)
            )
        ORDER BY d.{by} {order}, d.tenant {order}, d.id {order}
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
                %(after_number)s::bigint IS NULL
                OR (h.{by}, h.tenant, h.id)
                    {beyond} (%(after_number)s::bigint, %(after_tenant)s::text, %(after_id)s::text)
            )
        ORDER BY h.{by} {order}, h.tenant {order}, h.id {order}
        LIMIT %(limit)s::int
    )
) AS f
ORDER BY f.{by} {order}, f.tenant {order}, f.id {order}
LIMIT %(limit)s::int
