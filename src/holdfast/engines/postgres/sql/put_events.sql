-- Load events as they were, without jobs.
INSERT INTO holdfast.chronicle_events (
    event_id, tenant, event_type, version, payload, scope, key, entity_type, entity_id,
    actor_type, actor_id, actor_name, before, after, diff, occurred_at, created_at, position,
    fanout_version, request_id, device, client, ip, reason, correlation_id, causation_id,
    trace_id, supersedes, imported_by
)
SELECT
    n.event_id::uuid, n.tenant, n.event_type, n.version, n.payload::json, n.scope, n.key,
    n.entity_type, n.entity_id, n.actor_type, n.actor_id, nullif(n.actor_name, ''),
    n.before::json, n.after::json, n.diff::json,
    holdfast.time_of(n.occurred_at_us), holdfast.time_of(n.created_at_us), n.position, n.fanout_version,
    nullif(n.request_id, ''), nullif(n.device, ''), nullif(n.client, ''), nullif(n.ip, ''),
    nullif(n.reason, ''), nullif(n.correlation_id, ''), nullif(n.causation_id, ''),
    nullif(n.trace_id, ''), n.supersedes::uuid, nullif(n.imported_by, '')
FROM unnest(
    %(event_ids)s::text[], %(tenants)s::text[], %(event_types)s::text[], %(versions)s::int[],
    %(payloads)s::text[], %(scopes)s::text[], %(keys)s::text[], %(entity_types)s::text[],
    %(entity_ids)s::text[], %(actor_types)s::text[], %(actor_ids)s::text[],
    %(actor_names)s::text[], %(befores)s::text[], %(afters)s::text[], %(diffs)s::text[],
    %(occurred_at_us)s::bigint[], %(request_ids)s::text[], %(devices)s::text[],
    %(clients)s::text[], %(ips)s::text[], %(reasons)s::text[], %(correlation_ids)s::text[],
    %(causation_ids)s::text[], %(trace_ids)s::text[], %(supersedes)s::text[],
    %(imported_by)s::text[], %(created_at_us)s::bigint[], %(position)s::bigint[],
    %(fanout_version)s::bigint[]
) AS n (
    event_id, tenant, event_type, version, payload, scope, key, entity_type, entity_id,
    actor_type, actor_id, actor_name, before, after, diff, occurred_at_us, request_id, device,
    client, ip, reason, correlation_id, causation_id, trace_id, supersedes, imported_by,
    created_at_us, position, fanout_version
)
