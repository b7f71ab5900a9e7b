INSERT INTO dead_bodies (seq, crc, body)
SELECT
  json_extract(key, '$[0]'), json_extract(key, '$[1]'), value
FROM json_each(:rows)
