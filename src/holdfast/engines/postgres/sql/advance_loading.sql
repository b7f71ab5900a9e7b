-- Say how far this load will have come with this transaction, unless another one goes on as well.
UPDATE holdfast.loading AS l
SET records = %(records)s::bigint, digest = %(digest)s::bytea
WHERE l.records = %(old_records)s::bigint AND l.digest = %(old_digest)s::bytea
RETURNING true
