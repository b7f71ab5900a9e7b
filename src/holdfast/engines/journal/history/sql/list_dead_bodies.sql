SELECT json_group_array(json_array(seq, crc, body))
FROM (SELECT seq, crc, body FROM dead_bodies WHERE seq > :after ORDER BY seq LIMIT :limit)
