-- Nobody has a snapshot from before this version: transactions that begin now are after it.
UPDATE holdfast.fanout_marks AS m
SET ends_at = pg_snapshot_xmax(pg_current_snapshot())
WHERE m.version = %(version)s::bigint AND m.ends_at IS NULL
