-- Which tenant of these queues had its last turn when.
SELECT t.queue, t.tenant, t.token
FROM holdfast.turns AS t
WHERE t.queue = ANY (%(queues)s::text[])
