-- Each kind and shape with its deaths by hour; kinds that differ in their class are one group.
SELECT json_group_array(json_array(
  found.kind, found.shape, kinds.queue, kinds.task, kinds.error_reason, kinds.status,
  shapes.fingerprint, kinds.failure_class, found.count, found.first_at_us, found.last_at_us,
  found.tenants, found.scopes,
  (
    SELECT json_group_array(json_array(recent.hour_us, recent.count))
    FROM group_hours AS recent
    WHERE recent.kind = found.kind AND recent.shape = found.shape AND recent.hour_us >= :since_us
  )
))
FROM groups AS found
CROSS JOIN kinds ON kinds.kind = found.kind
CROSS JOIN shapes ON shapes.shape = found.shape
WHERE {where}
