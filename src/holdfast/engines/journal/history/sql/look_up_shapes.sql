SELECT json_group_array(json_array(key, shapes.shape))
FROM json_each(:shapes) CROSS JOIN shapes ON shapes.fingerprint = value
