-- Delete records that have expired, some at a time.
WITH old AS (
    SELECT r.kind, r.name
    FROM holdfast.records AS r
    WHERE r.expires_at_us BETWEEN 1 AND %(now_us)s::bigint
    LIMIT %(limit)s::integer
)
DELETE FROM holdfast.records AS r
USING old AS o
WHERE r.kind = o.kind AND r.name = o.name
    AND r.expires_at_us BETWEEN 1 AND %(now_us)s::bigint
RETURNING r.name
