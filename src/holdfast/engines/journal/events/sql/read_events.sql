-- :names is a JSON array of [tenant, id].
SELECT json_group_array(json_array(position, crc, body))
FROM json_each(:names) AS name
CROSS JOIN events
WHERE events.id = json_extract(name.value, '$[1]')
  AND events.tenant = json_extract(name.value, '$[0]')
