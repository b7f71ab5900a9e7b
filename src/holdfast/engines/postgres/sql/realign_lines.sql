-- Move jobs of these queues that were enqueued while a policy changed to its line.
WITH alone_before AS (
    UPDATE holdfast.jobs AS j
    SET line = 1
    FROM holdfast.policies AS p
    WHERE p.queue = ANY (%(queues)s::text[]) AND p.line = 1 AND j.queue = p.queue AND j.line = 2
)
UPDATE holdfast.jobs AS j
SET line = 2
FROM holdfast.policies AS p
WHERE p.queue = ANY (%(queues)s::text[]) AND p.line = 2 AND j.queue = p.queue AND j.line = 1
    AND holdfast.queue_number(j.queue) = holdfast.queue_number(p.queue)
