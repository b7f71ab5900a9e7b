-- The index has the rows of a tenant together for each number of attempts, and few numbers.
WITH RECURSIVE numbers (attempts) AS (
    SELECT max(attempt) FROM dead INDEXED BY dead_by_attempt
    UNION ALL
    SELECT (SELECT max(attempt) FROM dead INDEXED BY dead_by_attempt WHERE attempt < attempts)
    FROM numbers
    WHERE attempts IS NOT NULL
)
SELECT json_group_array(json_array(seq, crc, body))
FROM dead_bodies
WHERE seq IN (
    SELECT seq FROM numbers
    CROSS JOIN dead INDEXED BY dead_by_attempt ON attempt = attempts
    WHERE {where}
    ORDER BY {by} {order}, tenant {order}, id {order}
    LIMIT :limit
)
