-- Rows that are in the table or in the recount, but not in both.
WITH recount AS (
  SELECT kinds.kind, count(dead.seq) AS count
  FROM kinds LEFT JOIN dead ON dead.kind = kinds.kind
  GROUP BY kinds.kind
),
difference AS (
  SELECT 'stored' AS side, stored.* FROM (
    SELECT kind, count FROM kinds EXCEPT SELECT kind, count FROM recount
  ) AS stored
  UNION ALL
  SELECT 'recounted', real.* FROM (
    SELECT kind, count FROM recount EXCEPT SELECT kind, count FROM kinds
  ) AS real
)
SELECT json_group_array(json_array(side, kind, count)) FROM (SELECT * FROM difference LIMIT 20)
