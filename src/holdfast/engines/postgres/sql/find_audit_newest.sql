-- The audit records that match a search, before this number, the newest first.
SELECT a.number, a.record
FROM holdfast.audit AS a
WHERE a.number < %(after)s::bigint
    -- include audit_filter a
ORDER BY a.number DESC
LIMIT %(limit)s::int
