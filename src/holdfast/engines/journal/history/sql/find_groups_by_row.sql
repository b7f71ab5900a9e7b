SELECT json_group_array(json_array(
  kinds.queue, kinds.error_reason, kinds.failure_class, shapes.fingerprint, found.hour_us,
  found.count, found.first_at_us, found.last_at_us, found.tenants, found.scopes
))
FROM (
  SELECT
    kind, shape, finished_at_us / :hour_us * :hour_us AS hour_us, count(*) AS count,
    min(finished_at_us) AS first_at_us, max(finished_at_us) AS last_at_us,
    count(DISTINCT tenant) AS tenants, count(DISTINCT tenant || char(10) || scope) AS scopes
  FROM dead
  WHERE state = 'dead' AND {where}
  GROUP BY 1, 2, 3
) AS found
CROSS JOIN kinds ON kinds.kind = found.kind AND kinds.failure_class <> ''
CROSS JOIN shapes ON shapes.shape = found.shape
