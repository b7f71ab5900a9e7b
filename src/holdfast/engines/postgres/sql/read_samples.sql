-- The points of these queues, or of all: each the greatest depths of its time, and sums.
SELECT
    s.queue, s.at_us / %(step_us)s::bigint * %(step_us)s::bigint AS start_us, max(s.pending),
    max(s.in_flight), max(s.blocked), max(s.dead), max(s.held), max(s.oldest_age_seconds),
    sum(s.enqueued)::bigint, sum(s.completed)::bigint, sum(s.retried)::bigint,
    sum(s.died)::bigint, sum(s.seconds)
FROM holdfast.samples AS s
WHERE s.tier = %(tier)s::smallint
    AND s.at_us >= %(from_us)s::bigint
    AND s.at_us < %(to_us)s::bigint
    AND (%(queues)s::text[] IS NULL OR s.queue = ANY (%(queues)s::text[]))
GROUP BY s.queue, start_us
ORDER BY s.queue, start_us
