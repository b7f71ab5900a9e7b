-- The audit, from its beginning.
SELECT a.record FROM holdfast.audit AS a ORDER BY a.number
