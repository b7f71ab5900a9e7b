-- Put jobs of this queue that came in while its policy changed into the line of now.
UPDATE holdfast.jobs AS j
SET line = p.line
FROM holdfast.policies AS p
WHERE p.queue = ANY (%(queues)s::text[])
    AND j.queue = p.queue
    AND j.line = CASE p.line WHEN 1 THEN 2 ELSE 1 END
