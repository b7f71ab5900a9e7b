SELECT json_group_array(json_array(seq, crc, body, tenant, id, created_at_us))
FROM (
  SELECT seq, crc, body, tenant, id, created_at_us FROM notes
  WHERE seq > :after ORDER BY seq LIMIT :limit
)
