SELECT json_group_array(json_array(seq, crc, body))
FROM (
  SELECT seq, crc, body FROM done
  WHERE seq > :after AND finished_at_us >= :forget_before_us ORDER BY seq LIMIT :limit
)
