INSERT INTO shapes (fingerprint)
SELECT value FROM json_each(:shapes)
WHERE true
ON CONFLICT DO NOTHING
