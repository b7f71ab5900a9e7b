-- The columns of an event, see events.rows.event_of.
t.event_id::text AS event_id, t.event_type, t.version, t.tenant, t.scope, t.key, t.entity_type, t.entity_id,
t.actor_type, t.actor_id, coalesce(t.actor_name, '') AS actor_name, t.payload::text AS payload,
t.before::text AS before, t.after::text AS after, t.diff::text AS diff,
holdfast.us_of(t.occurred_at) AS occurred_at_us, holdfast.us_of(t.created_at) AS created_at_us,
t.position, t.fanout_version, coalesce(t.request_id, '') AS request_id,
coalesce(t.device, '') AS device, coalesce(t.client, '') AS client, coalesce(t.ip, '') AS ip,
coalesce(t.reason, '') AS reason, coalesce(t.correlation_id, '') AS correlation_id,
coalesce(t.causation_id, '') AS causation_id, coalesce(t.trace_id, '') AS trace_id,
t.supersedes::text AS supersedes, coalesce(t.imported_by, '') AS imported_by
