INSERT INTO dead (
  seq, tenant, id, scope, kind, shape, task, key, replay_run, state, attempt, created_at_us,
  finished_at_us, message
)
SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
  json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
  json_extract(value, '$[6]'), json_extract(value, '$[7]'), json_extract(value, '$[8]'),
  json_extract(value, '$[9]'), json_extract(value, '$[10]'), json_extract(value, '$[11]'),
  json_extract(value, '$[12]'), json_extract(value, '$[13]')
FROM json_each(:rows)
