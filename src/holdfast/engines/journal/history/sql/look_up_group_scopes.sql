SELECT json_group_array(json_array(hit.key, group_scopes.count))
FROM json_each(:hits) AS hit
CROSS JOIN group_scopes
  ON group_scopes.kind = json_extract(hit.value, '$[0]')
  AND group_scopes.shape = json_extract(hit.value, '$[1]')
  AND group_scopes.tenant = json_extract(hit.value, '$[2]')
  AND group_scopes.scope = json_extract(hit.value, '$[3]')
