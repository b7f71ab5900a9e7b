-- Rows that are in the table or in the recount, but not in both.
WITH recount AS (
  SELECT tenant, queue, state, count(*) AS count FROM done GROUP BY tenant, queue, state
  UNION ALL
  SELECT tenant, kinds.queue, state, count(*)
  FROM dead JOIN kinds ON kinds.kind = dead.kind
  GROUP BY tenant, kinds.queue, state
),
difference AS (
  SELECT 'stored' AS side, stored.* FROM (
    SELECT tenant, queue, state, count FROM tallies EXCEPT SELECT tenant, queue, state, count FROM recount
  ) AS stored
  UNION ALL
  SELECT 'recounted', real.* FROM (
    SELECT tenant, queue, state, count FROM recount EXCEPT SELECT tenant, queue, state, count FROM tallies
  ) AS real
)
SELECT json_group_array(json_array(side, tenant, queue, state, count)) FROM (SELECT * FROM difference LIMIT 20)
