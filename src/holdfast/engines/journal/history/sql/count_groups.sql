INSERT INTO groups (kind, shape, count, first_at_us, last_at_us, tenants, scopes)
SELECT
  json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
  json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
  json_extract(value, '$[6]')
FROM json_each(:changes)
WHERE true
ON CONFLICT DO UPDATE SET
  count = groups.count + excluded.count,
  first_at_us = min(groups.first_at_us, excluded.first_at_us),
  last_at_us = max(groups.last_at_us, excluded.last_at_us),
  tenants = groups.tenants + excluded.tenants,
  scopes = groups.scopes + excluded.scopes
