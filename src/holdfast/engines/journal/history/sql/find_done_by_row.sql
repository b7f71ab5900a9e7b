-- In an order for which no index is made: the done are too many, and leave soon.
SELECT json_group_array(json_array(seq, crc, body))
FROM done
WHERE seq IN (
    SELECT seq FROM done NOT INDEXED
    WHERE {where}
    ORDER BY {by} {order}, tenant {order}, id {order}
    LIMIT :limit
)
