-- Rows that are in the table or in the recount, but not in both.
WITH recount AS (
  SELECT
    dead.kind AS kind, shape, tenant, scope, count(*) AS count
  FROM dead JOIN kinds ON kinds.kind = dead.kind
  WHERE state = 'dead' AND failure_class <> ''
  GROUP BY 1, 2, 3, 4
),
difference AS (
  SELECT 'stored' AS side, stored.* FROM (
    SELECT kind, shape, tenant, scope, count FROM group_scopes WHERE count <> 0 EXCEPT SELECT kind, shape, tenant, scope, count FROM recount
  ) AS stored
  UNION ALL
  SELECT 'recounted', real.* FROM (
    SELECT kind, shape, tenant, scope, count FROM recount EXCEPT SELECT kind, shape, tenant, scope, count FROM group_scopes
  ) AS real
)
SELECT json_group_array(json_array(side, kind, shape, tenant, scope, count)) FROM (SELECT * FROM difference LIMIT 20)
