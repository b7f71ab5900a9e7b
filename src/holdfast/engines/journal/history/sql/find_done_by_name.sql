SELECT json_group_array(json_array(seq, crc, body))
FROM done
WHERE seq IN (
    SELECT seq FROM done INDEXED BY done_by_name
    WHERE {where}
    ORDER BY {by} {order}, tenant {order}, id {order}
    LIMIT :limit
)
