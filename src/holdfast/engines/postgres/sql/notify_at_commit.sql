-- Notify all listeners: some may register between this statement and the commit.
SELECT count(pg_notify(%(channel)s::text, q.queue))
FROM unnest(%(queues)s::text[]) AS q (queue)
