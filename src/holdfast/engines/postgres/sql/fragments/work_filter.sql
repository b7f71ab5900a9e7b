-- The conditions of a filter on queue and task.
AND (%(queues)s::text[] IS NULL OR t.queue = ANY (%(queues)s::text[]))
AND (%(tasks)s::text[] IS NULL OR t.task = ANY (%(tasks)s::text[]))
AND (%(without_queues)s::text[] IS NULL OR t.queue <> ALL (%(without_queues)s::text[]))
AND (%(without_tasks)s::text[] IS NULL OR t.task <> ALL (%(without_tasks)s::text[]))
