-- Operations, the newest first, with the outcomes that they do not have yet.
SELECT
    o.operation,
    (
        SELECT coalesce(array_agg(ARRAY[c.state::bigint, c.count]), '{}')
        FROM holdfast.operation_outcomes AS c
        WHERE c.operation = o.id
    )
FROM holdfast.operations AS o
WHERE (%(ids)s::text[] IS NULL OR o.id = ANY(%(ids)s::text[]))
    AND (NOT %(running)s::boolean OR o.ended_at_us = 0)
ORDER BY o.started_at_us DESC, o.id DESC
LIMIT %(limit)s::bigint
