DELETE FROM attempts
WHERE (id, tenant, created_at_us) IN (
  SELECT json_extract(value, '$[1]'), json_extract(value, '$[0]'), json_extract(value, '$[2]')
  FROM json_each(:jobs)
)
