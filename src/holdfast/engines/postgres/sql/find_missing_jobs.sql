-- The jobs that events should have and have not: in no table of jobs. One snapshot sees an event with
-- its jobs. Only events whose jobs would be remembered, and whose transaction had not ended at the
-- mark: an event that came within a savepoint has an id which no snapshot lists, but which is higher
-- than that of its transaction. The first columns are the next mark, and how many were checked.
WITH clock AS MATERIALIZED (
    SELECT
        holdfast.time_of(greatest(
            0, coalesce(%(now_us)s::bigint, holdfast.now_us()) - %(remember_us)s::bigint
        )) AS since,
        pg_snapshot_xmin(pg_current_snapshot()) AS mark
),
checked AS MATERIALIZED (
    SELECT e.tenant, e.event_id::text AS event_id, e.event_type, e.fanout_version
    FROM clock
    JOIN holdfast.chronicle_events AS e ON e.created_at > clock.since
    WHERE %(mark)s::text IS NULL
        OR holdfast.full_xid(e.xmin) >= %(mark)s::text::xid8
),
missing AS (
    SELECT c.tenant, c.event_id, s.name
    FROM checked AS c
    JOIN holdfast.subscriptions AS s
        ON c.fanout_version >= s.since_version
        AND (s.event_types = '{}' OR c.event_type = ANY (s.event_types))
    WHERE NOT EXISTS (
        SELECT FROM holdfast.jobs AS j
        WHERE j.tenant = c.tenant AND j.id = s.name || ':' || c.event_id
    ) AND NOT EXISTS (
        SELECT FROM holdfast.dead AS d
        WHERE d.tenant = c.tenant AND d.id = s.name || ':' || c.event_id
    ) AND NOT EXISTS (
        SELECT FROM holdfast.history AS h
        WHERE h.tenant = c.tenant AND h.id = s.name || ':' || c.event_id
    )
    LIMIT %(limit)s::int
)
SELECT clock.mark::text, (SELECT count(*) FROM checked), m.tenant, m.event_id, m.name
FROM clock
LEFT JOIN missing AS m ON true
