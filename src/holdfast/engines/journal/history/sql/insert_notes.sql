INSERT INTO notes (seq, tenant, id, created_at_us, crc, body)
SELECT
  json_extract(key, '$[0]'), json_extract(key, '$[1]'), json_extract(key, '$[2]'),
  json_extract(key, '$[3]'), json_extract(key, '$[4]'), value
FROM json_each(:rows)
