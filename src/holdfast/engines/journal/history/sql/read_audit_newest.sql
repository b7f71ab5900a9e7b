SELECT json_group_array(json_array(number, crc, CAST(body AS TEXT)))
FROM (
  SELECT number, crc, body FROM audit WHERE number < :after ORDER BY number DESC LIMIT :limit
)
