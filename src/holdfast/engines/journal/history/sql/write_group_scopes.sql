INSERT OR REPLACE INTO group_scopes (kind, shape, tenant, scope, count)
SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
  json_extract(value, '$[3]'), json_extract(value, '$[4]')
FROM json_each(:rows)
