INSERT INTO kinds (queue, task, error_reason, failure_class, status, count)
SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
  json_extract(value, '$[3]'), json_extract(value, '$[4]'), 0
FROM json_each(:kinds)
WHERE true
ON CONFLICT DO NOTHING
