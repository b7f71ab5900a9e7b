-- Delete the records of a kind that have expired; count the others.
WITH expired AS (
    DELETE FROM holdfast.records AS r
    WHERE r.kind = %(kind)s::text AND r.expires_at_us BETWEEN 1 AND %(now_us)s::bigint
)
SELECT count(*)
FROM holdfast.records AS r
WHERE r.kind = %(kind)s::text AND NOT r.expires_at_us BETWEEN 1 AND %(now_us)s::bigint
