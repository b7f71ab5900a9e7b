-- Notify the processes that wait for jobs of these events, or all if there is time until the commit;
-- return the queues.
SELECT
    q.queue,
    CASE
        WHEN %(at_commit)s::boolean OR EXISTS (
            SELECT FROM holdfast.waiting AS w
            WHERE w.until_us > coalesce(%(now_us)s::bigint, holdfast.now_us())
                AND (q.queue = ANY (w.queues) OR '' = ANY (w.queues))
        ) THEN pg_notify(%(channel)s::text, q.queue)
    END IS NULL
FROM (
    SELECT DISTINCT s.queue
    FROM holdfast.subscriptions AS s
    WHERE s.event_types = '{}' OR s.event_types && %(event_types)s::text[] COLLATE "C"
) AS q
