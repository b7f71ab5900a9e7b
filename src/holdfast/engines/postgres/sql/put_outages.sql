-- Write outages as they are now; those with a time have ended.
WITH given AS (
    SELECT g.dependency, g.ended_at_us, g.outage
    FROM unnest(%(dependencies)s::text[], %(ended_at_us)s::bigint[], %(outages)s::bytea[])
        AS g (dependency, ended_at_us, outage)
),
ended AS (
    UPDATE holdfast.outages AS o
    SET ended_at_us = g.ended_at_us, outage = g.outage
    FROM given AS g
    WHERE g.ended_at_us IS NOT NULL AND o.dependency = g.dependency AND o.ended_at_us IS NULL
)
INSERT INTO holdfast.outages (dependency, outage)
SELECT g.dependency, g.outage
FROM given AS g
WHERE g.ended_at_us IS NULL
ON CONFLICT (dependency) WHERE ended_at_us IS NULL DO UPDATE SET outage = excluded.outage
