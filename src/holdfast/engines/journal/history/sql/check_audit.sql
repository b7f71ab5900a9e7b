SELECT number, json_array(number), crc, body
FROM audit
WHERE number > :after
ORDER BY number
LIMIT :limit
