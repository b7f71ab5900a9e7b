-- Store these events in their order, and a job for each subscription that wants one: subscriptions and
-- their version are those of one snapshot. Events that exist already are left out, here and in the
-- answer; it also has how many jobs were made, and which were not because there is a job of that id.
-- They are in no line yet.
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
        s.name, s.queue, s.task, s.event_types, s.max_attempts,
        CASE WHEN coalesce(p.ordered, true) THEN 0 ELSE p.line END AS line
    FROM holdfast.subscriptions AS s
    LEFT JOIN holdfast.policies AS p ON p.queue = s.queue
),
-- One value of the sequence has room for 65,536 jobs.
blocks AS MATERIALIZED (
    SELECT array_agg(holdfast.next_places()) AS places
    FROM generate_series(
        0, cardinality(%(event_ids)s::text[]) * (SELECT count(*) FROM subscribed) / 65536
    )
),
wanted AS MATERIALIZED (
    SELECT
        e.tenant, s.name || ':' || e.event_id AS id, e.scope, e.event_id, e.key, s.queue, s.task,
        s.max_attempts, s.line, row_number() OVER (ORDER BY e.position, s.name) - 1 AS number
    FROM stored AS e
    JOIN subscribed AS s ON s.event_types = '{}' OR e.event_type = ANY (s.event_types)
),
made AS (
    INSERT INTO holdfast.jobs (
        created_at_us, run_at_us, seq, max_attempts, priority, state, line, tied, tenant, id, scope,
        queue, task, payload, key, key_seq
    )
    SELECT
        coalesce(%(created_us)s::bigint, clock.now_us) + w.number, clock.now_us, n.seq,
        w.max_attempts, 0, 1, w.line, true, w.tenant, w.id, w.scope, w.queue,
        w.task, convert_to('{"event_id":"' || w.event_id || '"}', 'UTF8'), w.key, n.seq
    FROM clock
    CROSS JOIN blocks AS b
    CROSS JOIN wanted AS w
    CROSS JOIN LATERAL (
        SELECT b.places[1 + w.number / 65536] + w.number %% 65536 AS seq
    ) AS n
    ON CONFLICT (tenant, id) DO NOTHING
    RETURNING queue, tenant, id, key
),
fresh AS (
    INSERT INTO holdfast.fresh_keys (place, queue, tenant, key)
    SELECT clock.place, m.queue, m.tenant, m.key
    FROM clock
    CROSS JOIN (SELECT DISTINCT n.queue, n.tenant, n.key FROM made AS n) AS m
)
SELECT
    e.tenant, e.event_id, e.position, m.jobs,
    CASE WHEN m.jobs < (SELECT count(*) FROM wanted) THEN array(
        SELECT w.id FROM wanted AS w EXCEPT SELECT n.id FROM made AS n
    ) END AS taken
FROM stored AS e
CROSS JOIN (SELECT count(*) AS jobs FROM made) AS m
