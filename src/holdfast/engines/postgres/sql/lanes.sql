-- Where each priority of these queues begins: the first job of its line, due or not.
WITH RECURSIVE lanes AS (
    SELECT q.queue, f.priority, f.run_at_us, f.seq
    FROM unnest(%(queues)s::text[]) AS q (queue)
    CROSS JOIN LATERAL (
        SELECT j.priority, j.run_at_us, j.seq
        FROM holdfast.jobs AS j
        WHERE j.line = 1 AND j.queue = q.queue
        ORDER BY j.priority DESC, j.run_at_us, j.seq
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT l.queue, f.priority, f.run_at_us, f.seq
    FROM lanes AS l
    CROSS JOIN LATERAL (
        SELECT j.priority, j.run_at_us, j.seq
        FROM holdfast.jobs AS j
        WHERE j.line = 1 AND j.queue = l.queue AND j.priority < l.priority
        ORDER BY j.priority DESC, j.run_at_us, j.seq
        LIMIT 1
    ) AS f
)
SELECT l.queue, l.priority, l.run_at_us, l.seq
FROM lanes AS l
