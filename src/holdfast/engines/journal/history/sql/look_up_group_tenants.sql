SELECT json_group_array(json_array(hit.key, group_tenants.count))
FROM json_each(:hits) AS hit
CROSS JOIN group_tenants
  ON group_tenants.kind = json_extract(hit.value, '$[0]')
  AND group_tenants.shape = json_extract(hit.value, '$[1]')
  AND group_tenants.tenant = json_extract(hit.value, '$[2]')
