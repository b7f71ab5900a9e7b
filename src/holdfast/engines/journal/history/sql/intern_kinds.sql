INSERT INTO kinds (queue, error_reason, failure_class, count)
SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), 0
FROM json_each(:kinds)
WHERE true
ON CONFLICT DO NOTHING
