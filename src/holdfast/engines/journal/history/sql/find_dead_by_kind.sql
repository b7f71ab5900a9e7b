-- The first few of each kind, and of those the first few: whatever the order of the kinds is.
SELECT json_group_array(json_array(seq, crc, body))
FROM dead_bodies
WHERE seq IN (
  SELECT found.seq
  FROM json_each(:kinds) AS wanted
  CROSS JOIN dead AS found ON found.seq IN (
    SELECT seq FROM dead INDEXED BY dead_by_kind
    WHERE kind = wanted.value AND {where}
    ORDER BY {by} {order}, tenant {order}, id {order}
    LIMIT :limit
  )
  ORDER BY found.{by} {order}, found.tenant {order}, found.id {order}
  LIMIT :limit
)
