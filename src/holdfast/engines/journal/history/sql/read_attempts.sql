SELECT json_group_array(json_array(seq, crc, body))
FROM attempts INDEXED BY attempts_by_job
WHERE id = :id AND tenant = :tenant AND created_at_us = :created_at_us
