SELECT json_group_array(json_array(kind, shape, hour_us))
FROM groups
WHERE count = 0 AND (kind, shape, hour_us) IN (
  SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
  FROM json_each(:groups)
)
