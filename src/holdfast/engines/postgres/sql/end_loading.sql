-- Let engines open what was loaded; no row if another load is under way.
DELETE FROM holdfast.loading AS l
WHERE l.records = %(records)s::bigint AND l.digest = %(digest)s::bytea
RETURNING true
