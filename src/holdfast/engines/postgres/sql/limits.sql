-- The policies of these queues that have limits, and what is left of their rates.
SELECT p.queue, p.line, p.spent_until_us, p.policy
FROM holdfast.policies AS p
WHERE p.queue = ANY (%(queues)s::text[]) AND p.limited
