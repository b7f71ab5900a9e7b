INSERT INTO tallies (tenant, queue, state, count)
SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]')
FROM json_each(:changes)
WHERE true
ON CONFLICT DO UPDATE SET count = tallies.count + excluded.count
