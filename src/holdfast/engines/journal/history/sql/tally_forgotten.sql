SELECT json_group_array(json_array(tenant, queue, state, count))
FROM (
  SELECT tenant, queue, state, count(*) AS count
  FROM done
  WHERE seq > :after AND seq <= :until AND finished_at_us < :before_us
  GROUP BY tenant, queue, state
)
