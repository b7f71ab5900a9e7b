-- How many jobs of these queues are in flight, by tenant and key.
SELECT j.queue, j.tenant, j.key, count(*)
FROM holdfast.jobs AS j
WHERE j.state = 2 AND j.queue = ANY (%(queues)s::text[])
GROUP BY j.queue, j.tenant, j.key
