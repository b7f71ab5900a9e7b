SELECT json_group_array(json_array(
  kinds.queue, kinds.error_reason, kinds.failure_class, shapes.fingerprint, found.hour_us,
  found.count, found.first_at_us, found.last_at_us, found.tenants, found.scopes
))
FROM groups AS found
CROSS JOIN kinds ON kinds.kind = found.kind
CROSS JOIN shapes ON shapes.shape = found.shape
WHERE {where}
