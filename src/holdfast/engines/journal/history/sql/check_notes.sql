SELECT seq, json_array(seq, tenant, id, created_at_us), crc, body
FROM notes
WHERE seq > :after
ORDER BY seq
LIMIT :limit
