-- Enter a process into the registry, unless a live one claims under one of its names: return that.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us
), other AS MATERIALIZED (
    SELECT w.process
    FROM holdfast.workers AS w CROSS JOIN clock
    WHERE w.id <> %(id)s::text AND w.live_until_us > clock.now_us
        AND w.names && %(names)s::text[]
    LIMIT 1
), entered AS (
    INSERT INTO holdfast.workers (id, names, seen_at_us, live_until_us, process)
    SELECT
        %(id)s::text, %(names)s::text[], clock.now_us, clock.now_us + %(ttl_us)s::bigint,
        %(process)s::bytea
    FROM clock
    WHERE NOT EXISTS (SELECT FROM other)
    ON CONFLICT (id) DO UPDATE SET
        seen_at_us = excluded.seen_at_us,
        live_until_us = excluded.live_until_us,
        process = excluded.process
)
SELECT other.process FROM other
