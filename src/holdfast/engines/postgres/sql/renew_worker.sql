-- Renew the entry of a process that is live, store its answers, and return the commands for it.
-- A renewal takes no lock, so it may cross with the entry of another process of the same name. Then
-- both are live, and the next renewal tells: only the one with the lower id is renewed.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()) AS now_us
), renewed AS (
    UPDATE holdfast.workers AS w
    SET seen_at_us = clock.now_us,
        live_until_us = clock.now_us + %(ttl_us)s::bigint,
        process = %(process)s::bytea
    FROM clock
    WHERE w.id = %(id)s::text AND w.live_until_us > clock.now_us
        AND NOT EXISTS (
            SELECT FROM holdfast.workers AS other
            WHERE other.id < w.id AND other.live_until_us > clock.now_us
                AND other.names && w.names
        )
    RETURNING w.id
), answered AS (
    UPDATE holdfast.worker_commands AS c
    SET answer = a.answer
    FROM unnest(%(command_ids)s::text[], %(answers)s::bytea[]) AS a (id, answer)
    WHERE c.worker = %(id)s::text AND c.id = a.id AND c.answer IS NULL
)
SELECT EXISTS (SELECT FROM renewed), ARRAY(
    SELECT c.command
    FROM holdfast.worker_commands AS c
    WHERE c.worker = %(id)s::text AND c.answer IS NULL
        AND c.waits_until_us > clock.now_us
        AND c.id <> ALL (%(command_ids)s::text[])
    ORDER BY c.number
)
FROM clock
