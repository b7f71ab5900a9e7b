INSERT INTO group_hours (kind, shape, hour_us, count)
SELECT dead.kind, shape, finished_at_us / 3600000000 * 3600000000, count(*)
FROM dead JOIN kinds ON kinds.kind = dead.kind
WHERE state = 'dead' AND failure_class <> ''
GROUP BY 1, 2, 3
