-- Add the deaths of groups to their lives.
WITH taken AS (
    DELETE FROM holdfast.group_deaths RETURNING id, count, last_at_us
),
summed AS (
    SELECT t.id, sum(t.count)::bigint AS count, max(t.last_at_us) AS last_at_us
    FROM taken AS t
    GROUP BY t.id
)
UPDATE holdfast.group_lives AS g
SET total = g.total + s.count, last_at_us = greatest(g.last_at_us, s.last_at_us)
FROM summed AS s
WHERE s.id = g.id
RETURNING 1
