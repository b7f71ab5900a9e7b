-- Record the progress of a load with this transaction; no row if another load is under way.
UPDATE holdfast.loading AS l
SET records = %(records)s::bigint, digest = %(digest)s::bytea
WHERE l.records = %(old_records)s::bigint AND l.digest = %(old_digest)s::bytea
RETURNING true
