-- The last audit record.
SELECT a.number, a.hash FROM holdfast.audit AS a ORDER BY a.number DESC LIMIT 1
