-- How many jobs match a filter, up to this many.
SELECT count(*)
FROM (
    (
        SELECT
        FROM holdfast.jobs AS j
        WHERE %(unfinished)s::boolean
            -- include filter j
        LIMIT %(limit)s::bigint
    )
    UNION ALL
    (
        SELECT
        FROM holdfast.dead AS d
        WHERE %(dead)s::boolean
            -- include filter d
            -- include finished_filter d
            -- include failure_filter d
        LIMIT %(limit)s::bigint
    )
    UNION ALL
    (
        SELECT
        FROM holdfast.history AS h
        WHERE %(done)s::boolean
            AND h.finished_at_us
            >= (SELECT coalesce(%(now_us)s::bigint, holdfast.now_us())) - %(remember_us)s::bigint
            -- include filter h
            -- include finished_filter h
        LIMIT %(limit)s::bigint
    )
    LIMIT %(limit)s::bigint
) AS f
