-- What people did with groups, with the deaths that are not added yet.
SELECT
    g.id, g.first_at_us, greatest(g.last_at_us, n.last_at_us), g.total + coalesce(n.count, 0), g.life
FROM holdfast.group_lives AS g
LEFT JOIN (
    SELECT d.id, sum(d.count)::bigint AS count, max(d.last_at_us) AS last_at_us
    FROM holdfast.group_deaths AS d
    GROUP BY d.id
) AS n ON n.id = g.id
