INSERT INTO group_scopes (kind, shape, tenant, scope, count)
SELECT dead.kind, shape, tenant, scope, count(*)
FROM dead JOIN kinds ON kinds.kind = dead.kind
WHERE state = 'dead' AND failure_class <> ''
GROUP BY 1, 2, 3, 4
