DELETE FROM groups
WHERE (kind, shape) IN (
  SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:groups)
)
