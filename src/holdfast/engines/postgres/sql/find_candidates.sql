-- The first due jobs of each queue and priority.
SELECT d.*
FROM unnest(%(watermark_queues)s::text[], %(watermark_priorities)s::smallint[]) AS l (queue, priority)
CROSS JOIN LATERAL (
    SELECT
        -- include job_columns j
    FROM holdfast.jobs AS j
    WHERE j.line = 1
        AND holdfast.queue_number(j.queue) = holdfast.queue_number(l.queue)
        AND j.queue = l.queue
        AND j.priority = l.priority
        AND j.run_at_us <= %(at_us)s::bigint
        AND (%(tasks)s::text[] IS NULL OR j.task = ANY (%(tasks)s::text[]))
        AND (j.expires_at_us IS NULL OR j.expires_at_us > %(at_us)s::bigint)
        -- include reach j
    ORDER BY j.run_at_us, j.seq
    LIMIT %(limit)s::int
) AS d
