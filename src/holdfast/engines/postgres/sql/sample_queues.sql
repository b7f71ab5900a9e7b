-- The queues in which there was anything lately: they are sampled on, so that rates fall to 0.
SELECT DISTINCT s.queue
FROM holdfast.samples AS s
WHERE s.tier = 1
    AND s.at_us > %(after_us)s::bigint
    AND s.pending + s.in_flight + s.blocked + s.dead
        + s.enqueued + s.completed + s.retried + s.died > 0
