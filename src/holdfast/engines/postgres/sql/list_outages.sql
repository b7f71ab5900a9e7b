-- The outages that last, by dependency; and before them, if asked for, those that have ended.
SELECT o.outage
FROM holdfast.outages AS o
WHERE o.ended_at_us IS NULL OR %(ended)s::boolean
ORDER BY o.ended_at_us NULLS LAST, CASE WHEN o.ended_at_us IS NULL THEN o.dependency END, o.number
