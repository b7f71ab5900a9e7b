-- Let everybody use what was loaded.
DELETE FROM holdfast.loading AS l
WHERE l.records = %(records)s::bigint AND l.digest = %(digest)s::bytea
RETURNING true
