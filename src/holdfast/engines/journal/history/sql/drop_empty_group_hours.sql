DELETE FROM group_hours
WHERE count = 0 AND (kind, shape) IN (
  SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:groups)
)
