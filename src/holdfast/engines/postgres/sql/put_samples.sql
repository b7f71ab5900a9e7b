-- Keep samples of one moment, and merge them into their minute.
INSERT INTO holdfast.samples AS s (
    tier, at_us, queue, pending, in_flight, blocked, dead, held, oldest_age_seconds,
    enqueued, completed, retried, died, seconds
)
SELECT
    t.tier, %(at_us)s::bigint / t.step_us * t.step_us, n.queue, n.pending, n.in_flight, n.blocked,
    n.dead, n.held, n.oldest_age_seconds, n.enqueued, n.completed, n.retried, n.died, n.seconds
FROM unnest(
    %(queues)s::text[], %(pending)s::bigint[], %(in_flight)s::bigint[], %(blocked)s::bigint[],
    %(dead)s::bigint[], %(held)s::bigint[], %(oldest_age_seconds)s::double precision[],
    %(enqueued)s::bigint[], %(completed)s::bigint[], %(retried)s::bigint[], %(died)s::bigint[],
    %(seconds)s::double precision[]
) AS n (
    queue, pending, in_flight, blocked, dead, held, oldest_age_seconds, enqueued, completed,
    retried, died, seconds
)
CROSS JOIN (VALUES (0, 1), (1, 60000000)) AS t (tier, step_us)
ON CONFLICT (tier, at_us, queue) DO UPDATE SET
    pending = greatest(s.pending, excluded.pending),
    in_flight = greatest(s.in_flight, excluded.in_flight),
    blocked = greatest(s.blocked, excluded.blocked),
    dead = greatest(s.dead, excluded.dead),
    held = greatest(s.held, excluded.held),
    oldest_age_seconds = greatest(s.oldest_age_seconds, excluded.oldest_age_seconds),
    enqueued = s.enqueued + excluded.enqueued,
    completed = s.completed + excluded.completed,
    retried = s.retried + excluded.retried,
    died = s.died + excluded.died,
    seconds = s.seconds + excluded.seconds
