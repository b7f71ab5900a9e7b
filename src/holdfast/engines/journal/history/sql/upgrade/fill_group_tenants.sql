INSERT INTO group_tenants (kind, shape, tenant, count)
SELECT dead.kind, shape, tenant, count(*)
FROM dead JOIN kinds ON kinds.kind = dead.kind
WHERE state = 'dead' AND failure_class <> ''
GROUP BY 1, 2, 3
