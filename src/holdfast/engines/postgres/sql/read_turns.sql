-- The token of each tenant's last turn in these queues.
SELECT t.queue, t.tenant, t.token
FROM holdfast.turns AS t
WHERE t.queue = ANY (%(queues)s::text[])
