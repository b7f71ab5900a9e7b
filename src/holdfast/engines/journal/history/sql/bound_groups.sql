-- The first and the last of these groups, anew: one of them may have left.
UPDATE groups SET
  first_at_us = (
    SELECT min(dead.finished_at_us) FROM dead INDEXED BY dead_by_group
    WHERE dead.state = 'dead' AND dead.kind = groups.kind AND dead.shape = groups.shape
  ),
  last_at_us = (
    SELECT max(dead.finished_at_us) FROM dead INDEXED BY dead_by_group
    WHERE dead.state = 'dead' AND dead.kind = groups.kind AND dead.shape = groups.shape
  )
WHERE (kind, shape) IN (
  SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:groups)
)
