-- A row is [seq, crc, body], and the body a job as it is encoded: an array of its fields.
INSERT INTO done (
  seq, tenant, id, scope, queue, task, state, created_at_us, finished_at_us, attempt, crc, body
)
SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[2][1]'), json_extract(value, '$[2][0]'),
  json_extract(value, '$[2][2]'), json_extract(value, '$[2][3]'), json_extract(value, '$[2][4]'),
  json_extract(value, '$[2][11]'), json_extract(value, '$[2][8]'),
  json_extract(value, '$[2][24]'), json_extract(value, '$[2][12]'),
  json_extract(value, '$[1]'), json_extract(value, '$[2]')
FROM json_each(:rows)
