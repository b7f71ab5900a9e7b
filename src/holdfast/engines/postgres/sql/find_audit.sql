-- The audit records that match a search, after this number.
SELECT a.number, a.record
FROM holdfast.audit AS a
WHERE a.number > %(after)s::bigint
    -- include audit_filter a
ORDER BY a.number
LIMIT %(limit)s::int
