-- Count deaths of those of these groups that people touched.
INSERT INTO holdfast.group_deaths (id, count, last_at_us)
SELECT n.id, n.count, n.last_at_us
FROM unnest(%(groups)s::text[], %(counts)s::bigint[], %(last_at_us)s::bigint[])
    AS n (id, count, last_at_us)
WHERE EXISTS (SELECT FROM holdfast.group_lives AS g WHERE g.id = n.id)
