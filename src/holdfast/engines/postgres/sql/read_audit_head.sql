-- Where the audit ends.
SELECT a.number, a.hash FROM holdfast.audit AS a ORDER BY a.number DESC LIMIT 1
