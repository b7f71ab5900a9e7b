-- Nobody has a snapshot from before this version: transactions with a higher id than this one are after it.
UPDATE holdfast.fanout_marks AS m
SET ends_at = pg_current_xact_id()
WHERE m.version = %(version)s::bigint AND m.ends_at IS NULL
