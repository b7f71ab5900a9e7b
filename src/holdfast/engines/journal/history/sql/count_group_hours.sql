INSERT INTO group_hours (kind, shape, hour_us, count)
SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
  json_extract(value, '$[3]')
FROM json_each(:changes)
WHERE true
ON CONFLICT DO UPDATE SET count = group_hours.count + excluded.count
