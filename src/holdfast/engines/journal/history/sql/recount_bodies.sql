-- Rows without a body, kind or shape, and bodies without a row.
SELECT json_group_array(json_array(side, seq))
FROM (
  SELECT 'row' AS side, seq FROM dead
  WHERE seq NOT IN (SELECT seq FROM dead_bodies)
  OR kind NOT IN (SELECT kind FROM kinds)
  OR shape NOT IN (SELECT shape FROM shapes)
  UNION ALL
  SELECT 'body', seq FROM dead_bodies WHERE seq NOT IN (SELECT seq FROM dead)
  LIMIT 20
)
