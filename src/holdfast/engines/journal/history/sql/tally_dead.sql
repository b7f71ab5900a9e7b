SELECT json_group_array(json_array(tenant, queue, state, count))
FROM (
  SELECT dead.tenant, kinds.queue, dead.state, count(*) AS count
  FROM dead JOIN kinds USING (kind)
  WHERE {where}
  GROUP BY dead.tenant, kinds.queue, dead.state
)
