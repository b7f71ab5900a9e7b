UPDATE kinds
SET count = kinds.count + json_extract(change.value, '$[1]')
FROM json_each(:changes) AS change
WHERE kinds.kind = json_extract(change.value, '$[0]')
