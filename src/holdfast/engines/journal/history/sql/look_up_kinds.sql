SELECT json_group_array(json_array(key, kinds.kind))
FROM json_each(:kinds)
CROSS JOIN kinds
  ON kinds.queue = json_extract(value, '$[0]')
  AND kinds.task = json_extract(value, '$[1]')
  AND kinds.error_reason = json_extract(value, '$[2]')
  AND kinds.failure_class = json_extract(value, '$[3]')
  AND kinds.status = json_extract(value, '$[4]')
