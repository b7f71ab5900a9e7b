-- The transactions that began before the end of the last snapshot from before this version, except
-- those that are known to be of another database.
SELECT coalesce(
    (
        SELECT format('process %%s (%%s) has a transaction from before', a.pid, coalesce(nullif(a.application_name, ''), 'no name'))
        FROM pg_stat_activity AS a
        WHERE a.backend_xid = x.xid::xid
        LIMIT 1
    ),
    (
        SELECT format('transaction %%L is prepared since %%s', p.gid, p.prepared)
        FROM pg_prepared_xacts AS p
        WHERE p.transaction = x.xid::xid
    ),
    format('transaction %%s is from before', x.xid)
)
FROM holdfast.fanout_marks AS m
CROSS JOIN pg_snapshot_xip(pg_current_snapshot()) AS x (xid)
WHERE m.version = %(version)s::bigint
    AND x.xid < m.ends_at
    AND NOT EXISTS (
        SELECT FROM pg_stat_activity AS a
        WHERE a.backend_xid = x.xid::xid AND a.datname <> current_database()
    )
    AND NOT EXISTS (
        SELECT FROM pg_prepared_xacts AS p
        WHERE p.transaction = x.xid::xid AND p.database <> current_database()
    )
ORDER BY x.xid
