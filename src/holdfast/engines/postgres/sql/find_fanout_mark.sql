-- What is known of the end of the transactions that use an earlier version; nothing: they have ended.
-- A mark of another cluster, that was copied with the tables, says nothing here.
SELECT m.ends_at::text
FROM holdfast.fanout_marks AS m
WHERE m.version = %(version)s::bigint AND m.made_by < pg_snapshot_xmax(pg_current_snapshot())
