-- Add a record, unless there is one that has not expired.
INSERT INTO holdfast.records AS r (kind, name, value, expires_at_us)
VALUES (%(kind)s::text, %(name)s::text, %(value)s::text, %(expires_at_us)s::bigint)
ON CONFLICT (kind, name) DO UPDATE
SET value = excluded.value, expires_at_us = excluded.expires_at_us
WHERE r.expires_at_us BETWEEN 1 AND %(now_us)s::bigint
RETURNING r.name
