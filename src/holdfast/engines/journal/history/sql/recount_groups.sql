-- Rows that are in the table or in the recount, but not in both.
WITH recount AS (
  SELECT
    dead.kind AS kind, shape, count(*) AS count, min(finished_at_us) AS first_at_us,
    max(finished_at_us) AS last_at_us, count(DISTINCT tenant) AS tenants,
    count(DISTINCT tenant || char(10) || scope) AS scopes
  FROM dead JOIN kinds ON kinds.kind = dead.kind
  WHERE state = 'dead' AND failure_class <> ''
  GROUP BY 1, 2
),
difference AS (
  SELECT 'stored' AS side, stored.* FROM (
    SELECT kind, shape, count, first_at_us, last_at_us, tenants, scopes FROM groups EXCEPT SELECT kind, shape, count, first_at_us, last_at_us, tenants, scopes FROM recount
  ) AS stored
  UNION ALL
  SELECT 'recounted', real.* FROM (
    SELECT kind, shape, count, first_at_us, last_at_us, tenants, scopes FROM recount EXCEPT SELECT kind, shape, count, first_at_us, last_at_us, tenants, scopes FROM groups
  ) AS real
)
SELECT json_group_array(json_array(side, kind, shape, count, first_at_us, last_at_us, tenants, scopes)) FROM (SELECT * FROM difference LIMIT 20)
