-- The partitions of history in which every job is too old to be kept, or finished before this.
SELECT d.day::bigint
FROM (
    SELECT
        i.inhrelid AS day,
        (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''?(\d+)''?\)'))[1]::bigint AS to_us
    FROM pg_inherits AS i
    JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'holdfast.history'::regclass
) AS d
WHERE d.to_us <= greatest(
    coalesce(%(now_us)s::bigint, holdfast.now_us()) - %(remember_us)s::bigint,
    %(before_us)s::bigint
)
ORDER BY d.to_us
