-- Add this many changes of dead letters to the counts of their groups; return how many there were.
WITH gone AS (
    DELETE FROM holdfast.dead_changes AS c
    WHERE c.ctid = ANY (
        ARRAY(SELECT o.ctid FROM holdfast.dead_changes AS o LIMIT %(limit)s::int)
    )
    RETURNING c.*
),
summed AS (
    SELECT
        g.number, g.status, g.queue, g.task, g.error_reason, g.fingerprint, g.failure_class,
        grouping(g.tenant, g.scope)::smallint AS kind, coalesce(g.hour_us, 0) AS hour_us,
        coalesce(g.tenant, '') AS tenant, coalesce(g.scope, '') AS scope,
        sum(g.count)::bigint AS count
    FROM gone AS g
    GROUP BY
        g.number, g.status, g.queue, g.task, g.error_reason, g.fingerprint, g.failure_class,
        GROUPING SETS ((g.hour_us), (g.tenant), (g.tenant, g.scope))
    HAVING sum(g.count) <> 0
),
changed AS MATERIALIZED (
    SELECT s.*, coalesce(t.count, 0) AS before, coalesce(t.count, 0) + s.count AS after
    FROM summed AS s
    LEFT JOIN holdfast.dead_tallies AS t
        ON t.number = s.number AND t.kind = s.kind AND t.hour_us = s.hour_us
            AND t.tenant = s.tenant AND t.scope = s.scope
),
counted AS (
    INSERT INTO holdfast.dead_groups AS g (
        number, count, tenants, scopes, status, queue, task, error_reason, fingerprint,
        failure_class
    )
    SELECT
        c.number,
        sum(CASE c.kind WHEN 3 THEN c.count ELSE 0 END),
        sum(CASE c.kind WHEN 1 THEN (c.after > 0)::int - (c.before > 0)::int ELSE 0 END),
        sum(CASE c.kind WHEN 0 THEN (c.after > 0)::int - (c.before > 0)::int ELSE 0 END),
        c.status, c.queue, c.task, c.error_reason, c.fingerprint, c.failure_class
    FROM changed AS c
    GROUP BY c.number, c.status, c.queue, c.task, c.error_reason, c.fingerprint, c.failure_class
    ON CONFLICT (number) DO UPDATE SET
        count = g.count + excluded.count,
        tenants = g.tenants + excluded.tenants,
        scopes = g.scopes + excluded.scopes
),
emptied AS (
    DELETE FROM holdfast.dead_tallies AS t
    USING changed AS c
    WHERE t.number = c.number AND t.kind = c.kind AND t.hour_us = c.hour_us
        AND t.tenant = c.tenant AND t.scope = c.scope AND c.after = 0
),
kept AS (
    INSERT INTO holdfast.dead_tallies AS t (number, kind, hour_us, tenant, scope, count)
    SELECT c.number, c.kind, c.hour_us, c.tenant, c.scope, c.after
    FROM changed AS c
    WHERE c.after <> 0
    ON CONFLICT (number, kind, hour_us, tenant, scope) DO UPDATE SET count = excluded.count
)
SELECT count(*) FROM gone
