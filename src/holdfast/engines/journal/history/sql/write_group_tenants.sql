INSERT OR REPLACE INTO group_tenants (kind, shape, tenant, count)
SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
  json_extract(value, '$[3]')
FROM json_each(:rows)
