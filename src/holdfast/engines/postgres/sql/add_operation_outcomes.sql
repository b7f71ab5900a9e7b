-- Count how members of operations ended.
INSERT INTO holdfast.operation_outcomes (operation, state, count)
SELECT n.operation, n.state, n.count
FROM unnest(%(operations)s::text[], %(states)s::smallint[], %(counts)s::bigint[])
    AS n (operation, state, count)
WHERE EXISTS (SELECT FROM holdfast.operations AS o WHERE o.id = n.operation)
