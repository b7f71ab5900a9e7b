-- Dead jobs by what is alike, where they belong, and when they died, by hour.
SELECT json_group_array(json_array(
  kinds.queue, kinds.task, kinds.error_reason, kinds.status, shapes.fingerprint,
  kinds.failure_class, found.tenant, found.scope, found.hour_us, found.count, found.first_at_us,
  found.last_at_us
))
FROM (
  SELECT
    kind, shape, tenant, scope, finished_at_us / :hour_us * :hour_us AS hour_us,
    count(*) AS count, min(finished_at_us) AS first_at_us, max(finished_at_us) AS last_at_us
  FROM dead
  WHERE state = 'dead' AND {where}
  GROUP BY 1, 2, 3, 4, 5
) AS found
CROSS JOIN kinds ON kinds.kind = found.kind AND kinds.failure_class <> ''
CROSS JOIN shapes ON shapes.shape = found.shape
