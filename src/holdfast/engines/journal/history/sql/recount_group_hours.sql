-- Rows that are in the table or in the recount, but not in both.
WITH recount AS (
  SELECT
    dead.kind AS kind, shape, finished_at_us / 3600000000 * 3600000000 AS hour_us, count(*) AS count
  FROM dead JOIN kinds ON kinds.kind = dead.kind
  WHERE state = 'dead' AND failure_class <> ''
  GROUP BY 1, 2, 3
),
difference AS (
  SELECT 'stored' AS side, stored.* FROM (
    SELECT kind, shape, hour_us, count FROM group_hours EXCEPT SELECT kind, shape, hour_us, count FROM recount
  ) AS stored
  UNION ALL
  SELECT 'recounted', real.* FROM (
    SELECT kind, shape, hour_us, count FROM recount EXCEPT SELECT kind, shape, hour_us, count FROM group_hours
  ) AS real
)
SELECT json_group_array(json_array(side, kind, shape, hour_us, count)) FROM (SELECT * FROM difference LIMIT 20)
