-- Take the outcomes of an operation that were counted so far.
WITH gone AS (
    DELETE FROM holdfast.operation_outcomes AS c
    WHERE c.operation = %(id)s::text
    RETURNING c.state, c.count
)
SELECT g.state, sum(g.count)::bigint FROM gone AS g GROUP BY g.state
