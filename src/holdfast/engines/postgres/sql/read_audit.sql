-- The audit records after this number.
SELECT a.number, a.record
FROM holdfast.audit AS a
WHERE a.number > %(after)s::bigint
ORDER BY a.number
LIMIT %(limit)s::int
