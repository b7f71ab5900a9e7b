SELECT json_group_array(json_array(position, tenant, id))
FROM (
  SELECT position, tenant, id
  FROM events
  WHERE position > :after
  ORDER BY position
  LIMIT :limit
)
