-- The processes that have a snapshot from before this version of the subscriptions. Vacuum has some,
-- and appends nothing.
SELECT format('process %%s (%%s) has a snapshot from before', a.pid, coalesce(nullif(a.application_name, ''), 'no name'))
FROM pg_stat_activity AS a
JOIN holdfast.fanout_marks AS m ON m.version = %(version)s::bigint
WHERE a.datname = current_database()
    AND a.pid <> pg_backend_pid()
    AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
    AND a.backend_xmin IS NOT NULL
    AND holdfast.full_xid(a.backend_xmin) <= m.made_by
ORDER BY a.pid
