-- The time, and when the next job of these queues becomes due after a given time.
SELECT coalesce(%(now_us)s::bigint, holdfast.now_us()), (
    SELECT min(d.run_at_us)
    FROM (
        SELECT (
            SELECT j.run_at_us
            FROM holdfast.jobs AS j
            WHERE j.line = 1 AND j.queue = l.queue AND j.priority = l.priority
                AND holdfast.queue_number(j.queue) = holdfast.queue_number(l.queue)
                AND j.run_at_us > %(after_us)s::bigint
            ORDER BY j.run_at_us
            LIMIT 1
        ) AS run_at_us
        FROM unnest(%(watermark_queues)s::text[], %(watermark_priorities)s::smallint[]) AS l (queue, priority)
        UNION ALL
        SELECT min(j.run_at_us)
        FROM holdfast.jobs AS j
        WHERE j.line = 2 AND j.queue = ANY (%(queues)s::text[])
            AND j.run_at_us > %(after_us)s::bigint
    ) AS d
)
