-- Notify the processes that wait for these queues.
SELECT count(pg_notify(%(channel)s::text, q.queue))
FROM unnest(%(queues)s::text[]) AS q (queue)
WHERE EXISTS (
    SELECT FROM holdfast.waiting AS w
    WHERE w.until_us > coalesce(%(now_us)s::bigint, holdfast.now_us())
        AND (q.queue = ANY (w.queues) OR '' = ANY (w.queues))
)
