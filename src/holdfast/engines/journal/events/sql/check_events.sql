SELECT
  position,
  json_array(
    position, id, tenant, scope, event_type, key, entity_type, entity_id, actor_type, actor_id,
    request_id, correlation_id, occurred_at_us, fanout_version
  ),
  crc,
  body
FROM events
WHERE position > :after
ORDER BY position
LIMIT :limit
