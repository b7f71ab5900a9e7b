SELECT seq, json_array(seq, tenant, id, scope, queue, task, state, created_at_us, finished_at_us, attempt), crc, body
FROM done
WHERE seq > :after
ORDER BY seq
LIMIT :limit
