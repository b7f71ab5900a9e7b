INSERT INTO events (
  position, id, tenant, scope, event_type, key, entity_type, entity_id, actor_type, actor_id,
  request_id, correlation_id, occurred_at_us, fanout_version, crc, body
)
VALUES
  (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
