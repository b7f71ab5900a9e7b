INSERT INTO groups (kind, shape, count, first_at_us, last_at_us, tenants, scopes)
SELECT
  dead.kind, shape, count(*), min(finished_at_us), max(finished_at_us), count(DISTINCT tenant),
  count(DISTINCT tenant || char(10) || scope)
FROM dead JOIN kinds ON kinds.kind = dead.kind
WHERE state = 'dead' AND failure_class <> ''
GROUP BY 1, 2
