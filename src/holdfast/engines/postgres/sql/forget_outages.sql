-- Delete outages that have ended, except the last ones.
DELETE FROM holdfast.outages AS o
WHERE o.number IN (
    SELECT e.number
    FROM holdfast.outages AS e
    WHERE e.ended_at_us IS NOT NULL
    ORDER BY e.ended_at_us DESC, e.number DESC
    OFFSET %(kept)s::int
)
