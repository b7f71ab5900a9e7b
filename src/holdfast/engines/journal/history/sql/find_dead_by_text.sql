SELECT json_group_array(json_array(seq, crc, body))
FROM dead_bodies
WHERE seq IN (
    SELECT seq FROM dead NOT INDEXED
    WHERE {where}
    ORDER BY {by} {order}, tenant {order}, id {order}
    LIMIT :limit
)
