-- Notify all listeners: some may register between this statement and the commit. All names have a schema,
-- as in enqueue_one.
SELECT pg_catalog.count(pg_catalog.pg_notify(%(channel)s::pg_catalog.text, q.queue))
FROM pg_catalog.unnest(%(queues)s::pg_catalog.text[]) AS q (queue)
