-- Forget the operations that ended first, except so many.
DELETE FROM holdfast.operations AS o
WHERE o.id IN (
    SELECT e.id
    FROM holdfast.operations AS e
    WHERE e.ended_at_us > 0
    ORDER BY e.ended_at_us DESC, e.id DESC
    OFFSET %(kept)s::bigint
)
