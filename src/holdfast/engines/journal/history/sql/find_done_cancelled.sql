SELECT json_group_array(json_array(seq, crc, body))
FROM done
WHERE seq IN (
    SELECT seq FROM done INDEXED BY done_cancelled
    WHERE state = 'cancelled' AND {where}
    ORDER BY {by} {order}, tenant {order}, id {order}
    LIMIT :limit
)
