-- Sum up the outcomes of each operation into a row for each state.
WITH gone AS (
    DELETE FROM holdfast.operation_outcomes AS c RETURNING c.operation, c.state, c.count
)
INSERT INTO holdfast.operation_outcomes (operation, state, count)
SELECT g.operation, g.state, sum(g.count)
FROM gone AS g
WHERE EXISTS (SELECT FROM holdfast.operations AS o WHERE o.id = g.operation)
GROUP BY g.operation, g.state
