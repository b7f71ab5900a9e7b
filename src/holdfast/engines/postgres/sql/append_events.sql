-- Store these events in their order, and a job for each subscription that wants one: subscriptions and
-- their version are those of one snapshot. Events that exist already are left out, here and in the
-- answer. The jobs are in no line yet.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us, holdfast.next_places() AS place
),
stored AS (
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
        holdfast.time_of(coalesce(n.occurred_at_us, clock.now_us)), holdfast.time_of(clock.now_us),
        clock.place + n.number - 1, (SELECT f.version FROM holdfast.fanout AS f),
        nullif(n.request_id, ''), nullif(n.device, ''), nullif(n.client, ''), nullif(n.ip, ''),
        nullif(n.reason, ''), nullif(n.correlation_id, ''), nullif(n.causation_id, ''),
        nullif(n.trace_id, ''), n.supersedes::uuid, nullif(n.imported_by, '')
    FROM clock
    CROSS JOIN unnest(
        %(event_ids)s::text[], %(tenants)s::text[], %(event_types)s::text[], %(versions)s::int[],
        %(payloads)s::text[], %(scopes)s::text[], %(keys)s::text[], %(entity_types)s::text[],
        %(entity_ids)s::text[], %(actor_types)s::text[], %(actor_ids)s::text[],
        %(actor_names)s::text[], %(befores)s::text[], %(afters)s::text[], %(diffs)s::text[],
        %(occurred_at_us)s::bigint[], %(request_ids)s::text[], %(devices)s::text[],
        %(clients)s::text[], %(ips)s::text[], %(reasons)s::text[], %(correlation_ids)s::text[],
        %(causation_ids)s::text[], %(trace_ids)s::text[], %(supersedes)s::text[],
        %(imported_by)s::text[]
    ) WITH ORDINALITY AS n (
        event_id, tenant, event_type, version, payload, scope, key, entity_type, entity_id,
        actor_type, actor_id, actor_name, before, after, diff, occurred_at_us, request_id, device,
        client, ip, reason, correlation_id, causation_id, trace_id, supersedes, imported_by, number
    )
    ON CONFLICT (event_id, tenant) DO NOTHING
    RETURNING event_id::text AS event_id, tenant, scope, key, event_type, position
),
subscribed AS MATERIALIZED (
    SELECT
        s.name, s.queue, s.task, s.event_types, s.max_attempts, holdfast.next_places() AS place,
        row_number() OVER (ORDER BY s.name) AS number, count(*) OVER () AS count,
        CASE WHEN coalesce(p.ordered, true) THEN 0 ELSE p.line END AS line
    FROM holdfast.subscriptions AS s
    LEFT JOIN holdfast.policies AS p ON p.queue = s.queue
),
made AS (
    INSERT INTO holdfast.jobs (
        created_at_us, run_at_us, seq, max_attempts, priority, state, line, tied, tenant, id, scope,
        queue, task, payload, key, key_seq
    )
    SELECT
        coalesce(%(created_us)s::bigint, clock.now_us)
            + (e.position - clock.place) * s.count + s.number - 1,
        clock.now_us, s.place + e.position - clock.place, s.max_attempts, 0, 1, s.line, true,
        e.tenant, s.name || ':' || e.event_id, e.scope, s.queue, s.task,
        convert_to('{"event_id":"' || e.event_id || '"}', 'UTF8'), e.key, e.position
    FROM clock
    CROSS JOIN stored AS e
    JOIN subscribed AS s ON s.event_types = '{}' OR e.event_type = ANY (s.event_types)
    ON CONFLICT (tenant, id) DO NOTHING
    RETURNING queue, tenant, key
),
fresh AS (
    INSERT INTO holdfast.fresh_keys (queue, tenant, key)
    SELECT DISTINCT m.queue, m.tenant, m.key FROM made AS m
)
SELECT e.tenant, e.event_id, e.position FROM stored AS e
