-- Tell everybody who listens, once this is committed: whoever waits then may not wait yet.
SELECT count(pg_notify(%(channel)s::text, q.queue))
FROM unnest(%(queues)s::text[]) AS q (queue)
