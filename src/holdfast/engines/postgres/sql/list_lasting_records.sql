-- All records that do not expire.
SELECT r.kind, r.name, r.value, r.expires_at_us
FROM holdfast.records AS r
WHERE r.expires_at_us = 0
ORDER BY r.kind, r.name
