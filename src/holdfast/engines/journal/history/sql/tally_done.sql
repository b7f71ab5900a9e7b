SELECT json_group_array(json_array(tenant, queue, state, count))
FROM (
  SELECT tenant, queue, state, count(*) AS count FROM done
  WHERE {where}
  GROUP BY tenant, queue, state
)
