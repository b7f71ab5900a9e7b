-- Groups whose counts are not those of the dead letters, a sentence each.
SELECT format('dead letters are counted wrongly (%%s): SELECT holdfast.recount_dead()', w.number)
FROM (
    SELECT s.number
    FROM (
        SELECT t.number, t.kind, t.hour_us, t.tenant, t.scope, t.count
        FROM holdfast.dead_tallies AS t
        UNION ALL
        SELECT
            c.number, grouping(c.tenant, c.scope), coalesce(c.hour_us, 0),
            coalesce(c.tenant, ''), coalesce(c.scope, ''), sum(c.count)
        FROM holdfast.dead_changes AS c
        GROUP BY c.number, GROUPING SETS ((c.hour_us), (c.tenant), (c.tenant, c.scope))
        UNION ALL
        SELECT
            d.number, grouping(d.tenant, d.scope), coalesce(d.hour_us, 0),
            coalesce(d.tenant, ''), coalesce(d.scope, ''), -count(*)
        FROM (
            SELECT
                holdfast.group_number(
                    l.queue, l.task, l.error_reason, l.status, l.fingerprint, l.failure_class
                ) AS number,
                l.finished_at_us / 3600000000 * 3600000000 AS hour_us, l.tenant, l.scope
            FROM holdfast.dead AS l
            WHERE l.state = 5
        ) AS d
        GROUP BY d.number, GROUPING SETS ((d.hour_us), (d.tenant), (d.tenant, d.scope))
    ) AS s
    GROUP BY s.number, s.kind, s.hour_us, s.tenant, s.scope
    HAVING sum(s.count) <> 0
    UNION
    SELECT coalesce(g.number, t.number)
    FROM holdfast.dead_groups AS g
    FULL JOIN (
        SELECT
            t.number, sum(t.count) FILTER (WHERE t.kind = 3) AS count,
            count(*) FILTER (WHERE t.kind = 1 AND t.count > 0) AS tenants,
            count(*) FILTER (WHERE t.kind = 0 AND t.count > 0) AS scopes
        FROM holdfast.dead_tallies AS t
        GROUP BY t.number
    ) AS t ON t.number = g.number
    WHERE (coalesce(g.count, 0), coalesce(g.tenants, 0), coalesce(g.scopes, 0))
        <> (coalesce(t.count, 0), coalesce(t.tenants, 0), coalesce(t.scopes, 0))
    LIMIT 100
) AS w
