SELECT json_group_array(json_array(position, crc, body))
FROM (
  SELECT position, crc, body
  FROM events
  WHERE {where}
  ORDER BY position {order}
  LIMIT :limit
)
