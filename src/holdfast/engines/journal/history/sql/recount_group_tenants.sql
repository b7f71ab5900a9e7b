-- Rows that are in the table or in the recount, but not in both.
WITH recount AS (
  SELECT
    dead.kind AS kind, shape, tenant, count(*) AS count
  FROM dead JOIN kinds ON kinds.kind = dead.kind
  WHERE state = 'dead' AND failure_class <> ''
  GROUP BY 1, 2, 3
),
difference AS (
  SELECT 'stored' AS side, stored.* FROM (
    SELECT kind, shape, tenant, count FROM group_tenants WHERE count <> 0 EXCEPT SELECT kind, shape, tenant, count FROM recount
  ) AS stored
  UNION ALL
  SELECT 'recounted', real.* FROM (
    SELECT kind, shape, tenant, count FROM recount EXCEPT SELECT kind, shape, tenant, count FROM group_tenants
  ) AS real
)
SELECT json_group_array(json_array(side, kind, shape, tenant, count)) FROM (SELECT * FROM difference LIMIT 20)
