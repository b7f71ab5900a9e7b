-- All transactions that used an earlier version have ended.
DELETE FROM holdfast.fanout_marks AS m WHERE m.version = %(version)s::bigint AND m.ends_at IS NOT NULL
