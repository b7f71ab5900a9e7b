SELECT seq, json_array(seq, tenant, id, scope, queue, task, created_at_us, finished_at_us, attempt, state), crc, body
FROM done
WHERE seq > :after
ORDER BY seq
LIMIT :limit
