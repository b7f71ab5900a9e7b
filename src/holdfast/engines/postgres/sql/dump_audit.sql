-- All audit records, in order.
SELECT a.number, a.record FROM holdfast.audit AS a ORDER BY a.number
